#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: the configurations of an SGLang server, and which of them counts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_release
short_description: Keep the configurations of an SGLang server as releases
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Writes a configuration as a release, makes it the current one, remembers which one was proven, and goes back to
    that one or to any other that is kept.
  - A release is a folder below C(STATE_DIR/INSTANCE/releases). The link C(current) names the release that the manager
    starts, C(last_good) the one that was proven last.
  - With O(manager=systemd) it also writes the unit C(sglang-INSTANCE.service) and its environment file. Changes of your
    own belong into drop-ins of the unit, which are left alone.
  - Brings patched files into the installed SGLang, and takes them out with the first release that has none, unless
    another server of the host wants them. See O(patches).
  - What is written is recorded on the host, see O(audit_path).
  - Starts and stops nothing. A unit that was rewritten needs C(daemon_reload) of M(ansible.builtin.systemd_service).
  - Each file is replaced whole or not at all. A task that was killed half-way is finished by the next one.
extends_documentation_fragment:
  - inferops.sglang.sglang_instance
  - inferops.sglang.audit
options:
  state:
    description:
      - V(present) makes the given configuration the current release. Nothing changes where it is that already.
      - V(proven) remembers the current release as the last good one, and removes old releases.
      - V(restored) makes an earlier release the current one again, also where the current one cannot be read. See
        O(release). Its own manager counts, and not O(manager).
      - V(inspected) lists the releases and changes nothing.
    type: str
    choices: [present, proven, restored, inspected]
    default: present
  release:
    description:
      - With O(state=restored), the release to go back to. Empty means the one that was proven last.
      - V(previous) means the newest proven one that is not the current one. Where the current one is proven but was
        not proven last, a return to it was begun and not finished, and it is meant again.
      - Otherwise an ID of RV(releases), or the beginning of one.
    type: str
    default: ''
  etc_dir:
    description: Folder of the files that the server and its unit read, with a folder for each server. An absolute path.
    type: path
    default: /etc/sglang
  unit_dir:
    description: Folder of the systemd units. An absolute path.
    type: path
    default: /etc/systemd/system
  command:
    description:
      - The server's complete command line, one word an element, beginning with the absolute path of the program.
      - Required for O(state=present).
    type: list
    elements: str
  environment:
    description:
      - Environment variables of the server.
      - They are stored in files that only their owner can read, and Ansible does not log them on the host.
      - In results and differences, variables whose name contains KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL have no
        value.
    type: dict
    default: {}
  secret_args:
    description:
      - Arguments of the server that must not be seen in process lists, such as C(api-key) and C(admin-api-key). Names
        of options without dashes in front, and their values.
      - They reach the server in a file of its own, through SGLang's C(--config), which is appended to O(command).
    type: dict
    default: {}
  user:
    description: User that the server runs as. Empty means root.
    type: str
    default: ''
  working_directory:
    description: Folder in which the server starts. Empty means the root folder.
    type: str
    default: ''
  stop_timeout:
    description: Seconds that systemd gives the server to finish its requests when it is stopped.
    type: float
    default: 300.0
  host:
    description: Address that the server listens on. Stored for those who ask the server.
    type: str
    default: 127.0.0.1
  port:
    description: Port that the server listens on. Stored for those who ask the server.
    type: int
    default: 30000
  requested:
    description: What was asked for, as RV(inferops.sglang.sglang_preflight#module:sglang.requested). Stored.
    type: dict
    default: {}
  effective:
    description:
      - What the server must report when it runs, as RV(inferops.sglang.sglang_preflight#module:sglang.effective).
        Stored.
    type: dict
    default: {}
  adjusted:
    description: Where these two differ, as RV(inferops.sglang.sglang_preflight#module:sglang.adjusted). Stored.
    type: dict
    default: {}
  sglang_version:
    description:
      - Version of SGLang. Stored, and decides which exit status the unit takes for a regular end.
      - Empty where it is not known.
    type: str
    default: ''
  gpus:
    description: UUIDs of the GPUs that the server uses. Stored.
    type: list
    elements: str
    default: []
  container:
    description:
      - In which container the server runs, as RV(inferops.sglang.sglang_preflight#module:sglang.container). Empty for
        none.
    type: dict
    default: {}
  files:
    description:
      - Further files that the server reads. Names without folders, and their contents.
      - They lie beside the release. O(command) names them as C(STATE_DIR/INSTANCE/current/NAME).
      - Everybody on the host can read them, so they are no place for secrets.
    type: dict
    default: {}
  patches:
    description:
      - Files of the installed SGLang that are replaced while the release is the current one.
      - What was there is kept in C(STATE_DIR/.patches), before anything is replaced. It comes back, with owner and
        mode, when no server of the host wants the patch any more.
      - A file that is neither as released nor as this module left it fails the task before anything is written.
      - With O(container), nothing outside the release is written, since the patched files are mounted into the
        container.
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
        description:
          - Where that file lies on the host, or in the container, as
            RV(inferops.sglang.sglang_preflight#module:sglang.patches).
          - Required for O(state=present).
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
  origin:
    description:
      - Where the configuration came from. V(adopted) is for a server that somebody had started by hand. Stored.
    type: str
    choices: ['', adopted]
    default: ''
  proof:
    description:
      - With O(state=proven), what was measured. Stored beside the release.
      - C(ready_after), seconds from the start to readiness; C(accept_length), accepted tokens a step; C(version), as
        the server reported it; C(phases), a list of C(name) and C(seconds).
      - C(ranks), for a server on several hosts, the IDs of the releases that all its ranks run, in their order.
    type: dict
    default: {}
  keep:
    description:
      - With O(state=proven), how many of the proven releases stay, and as many of the others, the newest of each. At
        least 1. They are counted apart, so that a row of failures pushes out nothing that can be gone back to.
      - The current and the proven one always stay, the one that was proven before it, and those whose patches are in
        the installed SGLang.
    type: int
    default: 10
  replace_foreign:
    description:
      - Whether to replace a unit, environment file or file of secret arguments that this module did not write.
      - Otherwise such a file fails the task before anything is written.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Reads and checks everything and writes nothing.
  diff_mode:
    support: full
    description: Shows the release before and after, without secrets, and what patches change.
  platform:
    support: full
    platforms: linux
    description: The platforms it runs on.
seealso:
  - module: inferops.sglang.sglang_preflight
  - module: inferops.sglang.sglang_process
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Make a checked configuration the current release
  inferops.sglang.sglang_release:
    state: present
    command: "{{ checked.sglang.command }}"
    # secret values are blanked out in the result of the preflight
    environment: "{{ checked.sglang.environment | combine(sglang_environment) }}"
    secret_args:
      api-key: "{{ vault_sglang_api_key }}"
    requested: "{{ checked.sglang.requested }}"
    effective: "{{ checked.sglang.effective }}"
    adjusted: "{{ checked.sglang.adjusted }}"
    sglang_version: "{{ checked.sglang.version }}"
    gpus: "{{ checked.sglang.gpus }}"

- name: Remember that it works
  inferops.sglang.sglang_release:
    state: proven

- name: Go back to what worked last
  inferops.sglang.sglang_release:
    state: restored

- name: Go back to what worked before
  inferops.sglang.sglang_release:
    state: restored
    release: previous

- name: List what there is to go back to
  inferops.sglang.sglang_release:
    state: inspected
"""

RETURN = r"""
release:
  description: The release that is the current one afterwards. In check mode, the one that would be.
  returned: success
  type: dict
  contains:
    id:
      description:
        - Its name, time of writing in UTC and a part of the hash of its content.
        - Null with O(state=inspected) where there is none.
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    path:
      description: Its file. Null where there is none.
      returned: always
      type: str
      sample: /var/lib/sglang/main/releases/20261130T104500Z-5d41402a/release.json
    previous_id:
      description: The release that was the current one before. Null where there was none.
      returned: always
      type: str
      sample: 20261129T180000Z-7d793037
    last_good_id:
      description: The release that was proven last. Null where there is none.
      returned: always
      type: str
      sample: 20261129T180000Z-7d793037
    manager:
      description: The manager that runs the release. Null where there is none.
      returned: always
      type: str
      sample: systemd
    restart_needed:
      description:
        - Whether a server that runs already may have been started from something else, since another release became the
          current one, or a file that it is started from changed.
      returned: always
      type: bool
      sample: true
files:
  description: Files that were written outside the release. In check mode, those that would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/sglang/main/environment, /etc/systemd/system/sglang-main.service]
patched:
  description: Files of installed SGLangs that were replaced. In check mode, those that would be.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      returned: always
      type: str
      sample: /opt/sglang/lib/python3.12/site-packages/sglang/srt/speculative/eagle_worker_v2.py
    restored:
      description: Whether it is as released again.
      returned: always
      type: bool
      sample: false
removed:
  description:
    - Folders of old releases, and of those that a killed run left unfinished, that were removed. In check mode, those
      that would be.
  returned: success
  type: list
  elements: str
  sample: []
releases:
  description: The releases that are kept, newest first.
  returned: with O(state=inspected)
  type: list
  elements: dict
  contains:
    id:
      description: Its name.
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    created:
      description: When it was written, UTC in ISO 8601. Null where it cannot be read.
      returned: always
      type: str
      sample: '2026-11-30T10:45:00Z'
    current:
      description: Whether it is the one that the manager starts.
      returned: always
      type: bool
      sample: true
    last_good:
      description: Whether it was proven last.
      returned: always
      type: bool
      sample: true
    proven:
      description: Whether it was proven, or served when it was taken over.
      returned: always
      type: bool
      sample: true
    origin:
      description: V(adopted) where it was made from a server that somebody had started by hand.
      returned: always
      type: str
      sample: ''
    version:
      description: Version of SGLang. Empty where it is not known.
      returned: always
      type: str
      sample: 0.5.17
    requested:
      description: What was asked for, without secrets.
      returned: always
      type: dict
      sample: {speculative_algorithm: EAGLE3, speculative_num_steps: 3}
    accept_length:
      description: Accepted tokens a step when it was proven. Null where that is not known.
      returned: always
      type: float
      sample: 2.8
    ready_after:
      description: Seconds from the start to readiness when it was proven. Null where that is not known.
      returned: always
      type: float
      sample: 541.2
    proven_at:
      description: When it was proven, UTC in ISO 8601. Null where that is not known.
      returned: always
      type: str
      sample: '2026-11-30T10:52:00Z'
    ranks:
      description:
        - The releases that all ranks of the server ran when it was proven, in their order. Empty for a server of one
          host.
      returned: always
      type: list
      elements: str
      sample: []
    broken:
      description: Why it cannot be read.
      returned: only where that is so
      type: str
      sample: The release /var/lib/sglang/main/releases/... cannot be used.
"""

from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_release import main

if __name__ == "__main__":
    main()
