#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: checks a configuration of an SGLang server without touching what runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_preflight
short_description: Check an SGLang configuration before the running server is touched
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Checks everything about a configuration that can be checked while another server still runs, and reports all
    problems together. Starts, stops and writes nothing.
  - Looks at the models, the port, the GPUs, the environment and the state of the instance, applies rules of its own,
    and lets the argument parser of the host's own SGLang judge the command line.
  - Returns the command line and the B(effective) configuration, so that the running server can be compared with it.
extends_documentation_fragment:
  - inferops.sglang.sglang_instance
options:
  run_dir:
    description: Folder of the PID files of servers without a service manager. An absolute path.
    type: path
    default: /run/sglang
  etc_dir:
    description: Folder of the files that the server and its unit read. An absolute path.
    type: path
    default: /etc/sglang
  unit_dir:
    description: Folder of the systemd units. An absolute path.
    type: path
    default: /etc/systemd/system
  python:
    description:
      - Python interpreter on the host in which SGLang is installed.
      - A bare name is looked for in E(PATH) of O(environment), else of the session.
    type: str
    default: python3
  launch:
    description: What the interpreter runs, one word an element.
    type: list
    elements: str
    default: ["-m", "sglang.launch_server"]
  release:
    description:
      - Checks a release that is kept on the host instead of a configuration given here, before a server goes back to
        it. V(previous) is the newest proven one that is not the current one, an empty string the one that was proven
        last; else an ID or the beginning of one.
      - Everything about the configuration comes from the release then, and the options for it are ignored. What breaks
        a rule of good sense is a warning, since the release has served.
    type: str
  model_path:
    description:
      - Folder of the model, an absolute path, or its name on a hub.
      - A name on a hub is not checked.
      - Required unless O(release) is given.
    type: str
  served_model_name:
    description: Name under which the model is served. Without it, its path.
    type: str
  host:
    description: Address that the server listens on.
    type: str
    default: 127.0.0.1
  port:
    description: Port that the server listens on, 1024 or higher.
    type: int
    default: 30000
  tp_size:
    description: Tensor parallel size.
    type: int
    default: 1
  pp_size:
    description: Pipeline parallel size.
    type: int
    default: 1
  dp_size:
    description: Data parallel size. Without attention-DP in O(extra_args), each replica has GPUs of its own.
    type: int
    default: 1
  gpus:
    description:
      - The GPUs that the server may use, each an NVML index, a UUID, a unique start of a UUID, or a PCI bus id.
      - The server gets them as E(CUDA_VISIBLE_DEVICES).
      - An empty list means those that E(CUDA_VISIBLE_DEVICES) in O(environment) names, else all.
    type: list
    elements: str
    default: []
  expected_count:
    description: How many GPUs the host must have, whatever O(gpus) selects. Without it, this is not checked.
    type: int
  nvml_timeout:
    description: How many seconds one query of one GPU may take.
    type: float
    default: 10.0
  speculative_algorithm:
    description:
      - Algorithm of speculative decoding, such as V(EAGLE3).
      - V(none) means no speculation, and that all other C(speculative_*) options and arguments are left out.
      - Empty means that none was given, and then no other C(speculative_*) option may be.
    type: str
    default: ''
  speculative_draft_model_path:
    description: Folder of the draft model, an absolute path, or its name on a hub.
    type: str
  speculative_num_steps:
    description:
      - Draft steps.
      - Of this, O(speculative_eagle_topk) and O(speculative_num_draft_tokens) give all three or none.
    type: int
  speculative_eagle_topk:
    description: Candidates that are kept in each draft step.
    type: int
  speculative_num_draft_tokens:
    description:
      - Draft tokens that are verified at once.
      - With O(speculative_eagle_topk=1) SGLang makes it the steps plus one, whatever is given.
    type: int
  speculative_options:
    description:
      - Further speculative settings, by SGLang's own names without C(speculative_), such as C(ngram_max_bfs_breadth) or
        C(draft_model_quantization). What exists depends on the installed version.
      - V(true) gives the flag, a list several words. V(false), null and empty values leave the option out.
      - C(adaptive_config) can be the configuration itself, a dictionary. It becomes a file of the release, see
        RV(sglang.files).
    type: dict
    default: {}
  max_running_requests:
    description:
      - Largest number of requests that run at a time.
      - Without it SGLang decides, and with speculation takes 48.
    type: int
  mem_fraction_static:
    description: Share of the GPU memory for weights and cache, between 0 and 1. Without it SGLang decides.
    type: float
  extra_args:
    description:
      - Further arguments of the server, one word an element.
      - An argument that has an option here, whose value is a secret, or whose name the installed SGLang would only
        guess, is refused.
    type: list
    elements: str
    default: []
  environment:
    description:
      - Environment variables of the server. Ansible does not log them on the host.
      - In the result, variables whose name contains KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL have no value.
    type: dict
    default: {}
  secret_args:
    description:
      - Arguments of the server that must not be seen in process lists, such as C(api-key), C(admin-api-key) and
        C(ssl-keyfile-password). Names of options without dashes in front, and their values.
      - They are not part of RV(sglang.command). Give them to M(inferops.sglang.sglang_release) as well.
    type: dict
    default: {}
  container:
    description:
      - Container in which the server will run. It needs O(manager=systemd), whose unit runs the engine.
      - O(python) is then the image's, O(environment) and paths are those inside.
      - Folders of models that the host has and no volume covers are mounted read-only at their own paths.
    type: dict
    suboptions:
      engine:
        description: Container engine.
        type: str
        choices: [docker, podman]
        default: docker
      image:
        description: Image, by name or digest. It must be on the host already.
        type: str
        required: true
      volumes:
        description: Volumes, each C(SOURCE:TARGET) or C(SOURCE:TARGET:OPTIONS).
        type: list
        elements: str
        default: []
      shm_size:
        description: Size of the container's own shared memory, such as V(32g). Empty means to share the host's.
        type: str
        default: ''
      gpu_access:
        description:
          - How the container is given GPUs.
          - V(gpus) is docker's C(--gpus), V(cdi) the Container Device Interface, both with the server's GPUs only.
          - V(all) gives all GPUs of the host, V(none) leaves it to O(container.options).
          - V(auto) is V(gpus) for docker and V(cdi) for podman.
        type: str
        choices: [auto, gpus, cdi, all, none]
        default: auto
      options:
        description: Further words for the engine's C(run). Those that the collection gives itself are refused.
        type: list
        elements: str
        default: []
  patches:
    description:
      - Files of the installed SGLang that M(inferops.sglang.sglang_release) will be told to replace.
      - Refused where the file is not the expected one, and where the configuration does not load it.
    type: list
    elements: dict
    default: []
    suboptions:
      src:
        description: File on the controller, found like the O(ansible.builtin.copy#module:src) of a copy. UTF-8.
        type: str
        default: ''
      content:
        description: Content of the patched file. Filled in from O(patches[].src).
        type: str
      target:
        description: File to replace, from the folder on that holds the package.
        type: str
        required: true
      path:
        description: Not needed, since this module finds it out.
        type: str
        default: ''
      sha256_before:
        description: SHA-256 of the file as released, in hexadecimal.
        type: str
        required: true
      sha256_after:
        description: SHA-256 that the content must have, in hexadecimal. Empty means any.
        type: str
        default: ''
  unmanaged:
    description:
      - What to think of an SGLang server on O(port) that somebody started by hand.
      - V(refuse) fails. V(take_over) warns, for it will be stopped.
    type: str
    choices: [refuse, take_over]
    default: refuse
  user:
    description: User that the server will run as. Empty means root.
    type: str
    default: ''
  working_directory:
    description: Folder in which the server will start. Empty means the root folder.
    type: str
    default: ''
  replace_foreign:
    description: Whether M(inferops.sglang.sglang_release) will be told to replace files that it did not write.
    type: bool
    default: false
  parser:
    description:
      - Whether the argument parser of the host's own SGLang judges the command line.
      - V(auto) does so where it can be imported. Where O(launch) needs SGLang and the interpreter has none at all, the
        task fails.
      - V(required) fails where it cannot be imported.
      - V(skip) does without.
    type: str
    choices: [auto, required, skip]
    default: auto
  parser_timeout:
    description: How many seconds the parser may take, most of which are spent on importing SGLang.
    type: float
    default: 180.0
  measured:
    description:
      - What a sweep measured these settings with, where they come from one, as the filter
        P(inferops.sglang.sglang_settings#filter) returns it. C(sweep) is its name, C(model_path) its model,
        C(draft_model_paths) its drafts and C(versions) the versions of SGLang.
      - Another model or draft model is refused, for nothing is known of it. Another version is a warning.
    type: dict
    default: {}
requirements:
  - nvidia-ml-py 12.535.108 or later on the managed host, in the Python that Ansible uses there (it installs the module
    C(pynvml))
  - the NVIDIA driver with its library libnvidia-ml.so.1
attributes:
  check_mode:
    support: full
    description: Does the same, since it changes nothing.
  diff_mode:
    support: full
    description: Shows the current release and the checked configuration, one option a line and without secrets.
  platform:
    support: full
    platforms: linux
    description: The platforms it runs on.
seealso:
  - module: inferops.sglang.sglang_release
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Check EAGLE-3 with two steps
  inferops.sglang.sglang_preflight:
    python: /opt/sglang/bin/python
    model_path: /models/target
    tp_size: 8
    expected_count: 8
    max_running_requests: 48
    speculative_algorithm: EAGLE3
    speculative_draft_model_path: /models/draft-eagle3
    speculative_num_steps: 2
    speculative_eagle_topk: 1
    speculative_num_draft_tokens: 3
  register: checked

- name: Check adaptive speculation, which is off from 32 requests on
  inferops.sglang.sglang_preflight:
    python: /opt/sglang/bin/python
    model_path: /models/target
    tp_size: 8
    max_running_requests: 64
    speculative_algorithm: EAGLE3
    speculative_draft_model_path: /models/draft-eagle3
    speculative_num_steps: 3
    speculative_eagle_topk: 1
    speculative_num_draft_tokens: 4
    speculative_options:
      adaptive: true
      adaptive_config:
        "1": {candidate_steps: [1, 3]}
        "32": {candidate_steps: [0]}
  diff: true

- name: Check whether the server can go back to the release before
  inferops.sglang.sglang_preflight:
    release: previous

- name: Check the same server without speculation
  inferops.sglang.sglang_preflight:
    python: /opt/sglang/bin/python
    model_path: /models/target
    tp_size: 8
    speculative_algorithm: none
"""

RETURN = r"""
sglang:
  description: The server as it would be, and the instance as it is.
  returned: success
  type: dict
  contains:
    instance:
      description: Name of the instance.
      returned: always
      type: str
      sample: main
    version:
      description: Version of the host's SGLang. Empty where it is not known.
      returned: always
      type: str
      sample: 0.5.17
    command:
      description: The complete command line, without O(secret_args).
      returned: always
      type: list
      elements: str
      sample: [/opt/sglang/bin/python, -m, sglang.launch_server, --model-path, /models/target]
    environment:
      description: Environment variables of the server, secrets blanked out, with those that select O(gpus).
      returned: always
      type: dict
      sample:
        CUDA_DEVICE_ORDER: PCI_BUS_ID
        CUDA_VISIBLE_DEVICES: 0,1
    requested:
      description:
        - What was asked for, by the names of SGLang's own fields.
        - Always contains C(speculative_algorithm), which is null for a server that does not speculate.
      returned: always
      type: dict
      sample:
        model_path: /models/target
        speculative_algorithm: EAGLE3
        speculative_num_steps: 2
    effective:
      description:
        - What SGLang makes of it, in plain values and without secrets. Where no GPU is visible to the parser, without
          what it derives from one.
        - Without the parser, what was asked for and the adjustments that every version of SGLang makes.
      returned: always
      type: dict
      sample:
        max_running_requests: 48
        model_path: /models/target
        speculative_algorithm: EAGLE3
        speculative_num_steps: 2
    adjusted:
      description: Fields that SGLang changes, each with C(requested) and C(effective).
      returned: always
      type: dict
      sample:
        speculative_num_draft_tokens:
          effective: 3
          requested: 8
    gpus:
      description: UUIDs of the GPUs that the server will use, in the order of its ranks.
      returned: always
      type: list
      elements: str
      sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
    files:
      description: Files that the server reads and that the release brings along, by name.
      returned: always
      type: dict
      sample: {}
    container:
      description: The container for M(inferops.sglang.sglang_release). Empty without one.
      returned: always
      type: dict
      sample:
        engine: docker
        engine_path: /usr/bin/docker
        image: lmsysorg/sglang:v0.5.17
    patches:
      description: The patches for M(inferops.sglang.sglang_release), which reads their contents anew.
      returned: always
      type: list
      elements: dict
      contains:
        src:
          description: File on the controller. Empty where the content was given.
          returned: always
          type: str
          sample: eagle_worker_v2.py
        target:
          description: File to replace, from the folder on that holds the package.
          returned: always
          type: str
          sample: sglang/srt/speculative/eagle_worker_v2.py
        path:
          description: Where that file lies. Empty where SGLang could not be asked.
          returned: always
          type: str
          sample: /opt/sglang/lib/python3.12/site-packages/sglang/srt/speculative/eagle_worker_v2.py
        sha256_before:
          description: SHA-256 of the file as released.
          returned: always
          type: str
          sample: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
        sha256_after:
          description: SHA-256 of the patched file.
          returned: always
          type: str
          sample: fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9
    parser:
      description: The SGLang whose parser judged, or V(not run) and the reason.
      returned: always
      type: str
      sample: sglang 0.5.17
    running:
      description: The instance as it runs now. Null where it does not.
      returned: always
      type: dict
      contains:
        pid:
          description: PID of its main process.
          returned: always
          type: int
          sample: 4711
        start_ticks:
          description: When that process started, in clock ticks after boot. Tells it from a later one of the same PID.
          returned: always
          type: int
          sample: 123456
        manager:
          description: Who runs it.
          returned: always
          type: str
          sample: systemd
        unit:
          description: Its systemd unit. Empty with another manager.
          returned: always
          type: str
          sample: sglang-main.service
        container:
          description: Its container. Empty where it runs in none.
          returned: always
          type: str
          sample: ''
        session:
          description: Session of its main process. 0 where that does not matter.
          returned: always
          type: int
          sample: 0
        user:
          description: Whose process it is.
          returned: always
          type: str
          sample: root
        release:
          description: ID of the release that it was started from. Empty where that is not known.
          returned: always
          type: str
          sample: 20261130T104500Z-5d41402a
    neighbours:
      description: The other instances of the host.
      returned: always
      type: list
      elements: dict
      contains:
        instance:
          description: Its name.
          returned: always
          type: str
          sample: second
        pid:
          description: PID of its main process. 0 where it does not run.
          returned: always
          type: int
          sample: 4811
        unit:
          description: Its systemd unit. Empty with another manager.
          returned: always
          type: str
          sample: sglang-second.service
        container:
          description: Its container. Empty where it runs in none.
          returned: always
          type: str
          sample: ''
        session:
          description: Session of its main process. 0 where that does not matter.
          returned: always
          type: int
          sample: 0
    unmanaged:
      description: The SGLang server on O(port) that somebody started by hand. Null where there is none.
      returned: always
      type: dict
      contains:
        pid:
          description: PID of its main process.
          returned: always
          type: int
          sample: 4911
        start_ticks:
          description: When that process started, in clock ticks after boot.
          returned: always
          type: int
          sample: 223456
        user:
          description: Whose process it is.
          returned: always
          type: str
          sample: root
        name:
          description: Name of the process.
          returned: always
          type: str
          sample: python3
        command:
          description: Its command line without secrets.
          returned: always
          type: list
          elements: str
          sample: [python3, -m, sglang.launch_server, --model-path, /models/target]
        listening:
          description: Whether it listens on the port already.
          returned: always
          type: bool
          sample: true
        supervisor:
          description: Who would start it again. Empty where nobody would.
          returned: always
          type: str
          sample: ''
    changes:
      description:
        - What differs from the current release, a line for each option, without secrets.
        - Empty where nothing differs.
      returned: always
      type: list
      elements: str
      sample:
        - "--speculative-num-steps: 3 -> 2"
        - "environment NCCL_NVLS_ENABLE: 0 -> 1"
    release:
      description: ID of the release that was checked. Empty without O(release).
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    has_last_good:
      description: Whether there is a proven release to go back to.
      returned: always
      type: bool
      sample: true
checks:
  description: Everything that was checked; with a failure, only what failed. One name may occur several times.
  returned: unless an option has an impossible value
  type: list
  elements: dict
  contains:
    name:
      description: What was checked.
      returned: always
      type: str
      sample: port
    status:
      description: V(ok), V(failed), V(warning) or V(skipped).
      returned: always
      type: str
      sample: ok
    message:
      description: One sentence, with the remedy where one is needed.
      returned: always
      type: str
      sample: Port 30000 is free.
"""

from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_preflight import main

if __name__ == "__main__":
    main()
