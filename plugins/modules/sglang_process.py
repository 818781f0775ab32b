#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Starts, stops and inspects an SGLang server, whoever runs it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_process
short_description: Start, stop or inspect an SGLang server
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Starts, stops and inspects one SGLang server, whether a systemd unit runs it, in a container or not, or whether it
    is a process of its own on a host or in a container without systemd.
  - A stop drains the server, ends it as its version wants it, ends what is left of it, removes what it left behind in
    C(/dev/shm) and C(/tmp), and makes sure that nobody listens on its port any more. See the guide C(docs/stopping.md).
  - What belongs to a server is decided by evidence only, that is by what systemd, the container engine, the PID file
    and the kernel say, and by a variable that all processes of an instance inherit. Names of processes play no role.
    Another instance is never touched.
  - V(started) does not wait until the server answers. M(inferops.sglang.sglang_wait_ready) does that.
  - A process of its own gets a session of its own, no standard input, a log file, and a PID file that identifies it by
    PID, start time and boot. It keeps nothing of Ansible's connection open and outlives it.
  - It gets C(PATH), C(HOME), C(USER), C(LOGNAME), C(SHELL), C(LANG), C(LANGUAGE), C(LC_*), C(TZ), C(TMPDIR) and
    C(LD_LIBRARY_PATH) of the module's own environment, and beyond that only what the release says.
  - What the module does is recorded on the host, see O(audit_path).
extends_documentation_fragment:
  - inferops.sglang.audit
options:
  instance:
    description:
      - Name of the server on its host.
      - Lower-case letters, digits, V(-) and V(_), at most 48 characters, beginning with a letter or a digit.
    type: str
    default: main
  manager:
    description:
      - Who runs the server.
      - V(systemd) means the unit C(sglang-INSTANCE.service), also where that runs a container.
      - V(process) means a process of its own, for hosts and containers without systemd.
      - The default is the manager of the current release, and V(systemd) where there is none.
      - A stop also ends what another manager than this one runs for the instance. A start is refused meanwhile, and the
        start of a process of its own has its unit, if there is one, no longer started at boot.
    type: str
    choices: [systemd, process]
  state:
    description:
      - V(started) starts the current release, unless it runs already. It fails where the server runs with something
        else, because replacing a server needs a stop, and GPUs that are proven free, in between. It fails as well
        where somebody else listens on its port.
      - V(stopped) ends the server. Its main process alone gets SIGTERM, because SGLang finishes the running requests
        with its workers and then ends them itself. What is left after O(grace) gets SIGKILL.
      - V(inspected) only reports.
    type: str
    choices: [started, stopped, inspected]
    default: started
  state_dir:
    description: Folder in which the releases of all servers of the host are kept. An absolute path.
    type: path
    default: /var/lib/sglang
  run_dir:
    description: Folder of the PID file, and of the lock that keeps two runs apart. An absolute path. It is created
      where it is missing.
    type: path
    default: /run/sglang
  log_dir:
    description:
      - Folder of the log of a process of its own, C(INSTANCE.log). An absolute path. It is created where it is missing.
      - Each start begins a new log and keeps the one before as C(INSTANCE.log.1).
    type: path
    default: /var/log/sglang
  etc_dir:
    description: Folder of the files that a server reads, where the secret arguments of one that is taken over will lie.
      An absolute path. The one that M(inferops.sglang.sglang_release) is given.
    type: path
    default: /etc/sglang
  host:
    description: Address whose port must be free after a stop. The default is the one of the current release.
    type: str
  port:
    description:
      - Port that must be free after a stop, and where a server is looked for that somebody started by hand.
      - The default is the one of the current release. Without either no port is looked at.
    type: int
  api_key:
    description: Key of the server, to ask it for its requests. The default is the one of the current release.
    type: str
  drain_timeout:
    description:
      - Seconds to wait before SIGTERM until the server has no running and no queued request. V(0) does not ask it.
      - A server that does not answer, or that does not tell its requests, is not waited for.
      - SGLang goes on accepting requests meanwhile. Take it out of the router first.
    type: float
    default: 0
  grace:
    description:
      - Seconds that a server has to finish its requests after SIGTERM. V(0) kills it at once.
      - A unit has a limit of its own, TimeoutStopSec, since it was deployed. The shorter of the two counts.
    type: float
    default: 300
  kill_timeout:
    description: Seconds that processes have to disappear after SIGKILL. Must be positive.
    type: float
    default: 60
  unmanaged:
    description:
      - What a stop does with an SGLang server that somebody started by hand and that has, or will have, the O(port).
      - V(refuse) fails and names it.
      - V(take_over) writes a release that would start the same server again, makes it the current one and the last good
        one, and ends the server. It must answer a generation first, because only what works is worth going back to.
      - A server that a unit, a container engine or supervisord runs is refused in any case, because it would be started
        again.
    type: str
    choices: [refuse, take_over]
    default: refuse
  remove_leftovers:
    description:
      - Whether a stop removes the files of this server in C(/dev/shm) and C(/tmp) that no live process uses.
      - Where not all processes of the host can be looked at, nothing is removed.
    type: bool
    default: true
  enabled:
    description: Whether a unit that is started is also to be started at boot. Only for O(manager=systemd).
    type: bool
    default: true
  command:
    description: The whole command to start, interpreter first. Without it, the command of the current release. Only for
      O(manager=process).
    type: list
    elements: str
  environment:
    description: Environment of the server. Without it, the environment of the current release. Only for
      O(manager=process).
    type: dict
attributes:
  check_mode:
    support: full
    description: Finds and checks everything and says which processes would be ended and which files removed. Starts,
      signals, writes and removes nothing.
  diff_mode:
    support: full
    description: Shows whether the server runs, and which release, before and after.
  platform:
    support: full
    platforms: linux
    description: Needs C(/proc).
seealso:
  - module: inferops.sglang.sglang_release
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Start the current release
  inferops.sglang.sglang_process:
    instance: main
    state: started

- name: Stop the server when its requests are done, within half a minute and two minutes more
  inferops.sglang.sglang_process:
    instance: main
    state: stopped
    drain_timeout: 30
    grace: 120

- name: See whether it runs
  inferops.sglang.sglang_process:
    instance: main
    state: inspected
  register: server

- name: Take over the server that somebody started by hand on port 30000, and end it
  inferops.sglang.sglang_process:
    instance: main
    manager: systemd
    state: stopped
    port: 30000
    unmanaged: take_over

- name: Start a server that no release describes
  inferops.sglang.sglang_process:
    instance: trial
    manager: process
    state: started
    command: [/opt/sglang/bin/python3, -m, sglang.launch_server, --model-path, /models/small, --port, "30100"]
    environment:
      CUDA_VISIBLE_DEVICES: "0"
"""

RETURN = r"""
process:
  description: The server's main process, after the module has acted. In check mode, as it is now.
  returned: unless the options or the PID file are in error
  type: dict
  contains:
    running:
      description: Whether it runs.
      type: bool
      returned: always
      sample: true
    pid:
      description: Its PID. Null where it does not run. In a container, that of the container's first process.
      type: int
      returned: always
      sample: 48211
    start_ticks:
      description: Its start time in clock ticks after boot. Null where it does not run.
      type: int
      returned: always
      sample: 891274
    release:
      description: ID of the release that it was started from. Empty where it does not run, or where that is not known,
        as with a O(command) that was given.
      type: str
      returned: always
      sample: 20260102T030405Z-1f2e3d4c
    manager:
      description: Who runs it, or would.
      type: str
      returned: always
      sample: systemd
    unit:
      description: Its systemd unit. Empty for a process of its own.
      type: str
      returned: always
      sample: sglang-main.service
    container:
      description: Its container. Empty where it runs in none.
      type: str
      returned: always
      sample: ""
    detail:
      description: What systemd says about the unit. Empty for a process of its own.
      type: str
      returned: always
      sample: the unit sglang-main.service is active (running)
    log_path:
      description: File that a process of its own writes its log to. Empty for a unit, which logs to the journal.
      type: str
      returned: always
      sample: /var/log/sglang/main.log
    stale:
      description:
        - Why the PID file that was found led to no running server. Empty where it led to one, or where there was none.
        - The file was replaced or removed, except in check mode and with O(state=inspected).
      type: str
      returned: always
      sample: the process 48211 has ended
    leftovers:
      description: PIDs of processes that still run although the main process has ended, in ascending order.
      type: list
      elements: int
      returned: always
      sample: []
ended:
  description: The processes that were ended, the main process first. In check mode, those that would be.
  returned: unless the options or the PID file are in error
  type: list
  elements: dict
  contains:
    pid:
      description: PID of the process.
      type: int
      returned: always
      sample: 48211
    start_ticks:
      description: Its start time in clock ticks after boot.
      type: int
      returned: always
      sample: 891274
    name:
      description: Its name as C(ps) shows it.
      type: str
      returned: always
      sample: sglang::scheduler_TP0
    role:
      description: V(main), V(worker) for a process that was left of it, or V(orphan) for one that nothing but its
        inherited variable tells, as one that was left behind while it still imported its libraries.
      type: str
      returned: always
      sample: main
    action:
      description:
        - V(terminated) (ended after SIGTERM), V(killed) (needed SIGKILL), V(vanished) (was gone before the signal),
          V(survived).
        - In check mode V(would_terminate) or V(would_kill).
      type: str
      returned: always
      sample: terminated
    signals:
      description: The signals that it got, in order.
      type: list
      elements: str
      returned: always
      sample: [SIGTERM]
    seconds:
      description: Seconds from the first signal to its end, or to giving up.
      type: float
      returned: always
      sample: 4.2
    state:
      description: The kernel's letter for the state of one that survived, for example V(D). Empty for others.
      type: str
      returned: always
      sample: ""
    error:
      description: Why a signal could not be sent. Empty where it could.
      type: str
      returned: always
      sample: ""
drain:
  description: How the requests were waited for before SIGTERM.
  returned: with O(state=stopped)
  type: dict
  contains:
    asked:
      description: Whether the server was asked at all.
      type: bool
      returned: always
      sample: true
    seconds:
      description: How long that took.
      type: float
      returned: always
      sample: 3.1
    in_flight:
      description: Running and queued requests at the last look. Null where that is not known.
      type: int
      returned: always
      sample: 0
    source:
      description: The endpoint that told. Empty where none did.
      type: str
      returned: always
      sample: /v1/loads
    message:
      description: Why the waiting ended before there were none, or was not begun. Empty where there were none.
      type: str
      returned: always
      sample: ""
exit_status:
  description:
    - Exit status of the main process, as in a shell (128 and the number of the signal after one).
    - Null where nobody could ask for it, which is so for a process of its own that is stopped by a later task.
    - Of a server that died right after its start it is negative after a signal, with O(manager=process).
  returned: with O(state=stopped), and when the server died right after its start
  type: int
  sample: 137
clean_exit:
  description:
    - Whether the main process ended by itself and as its version does, with status 137 up to SGLang 0.5.18, and with 0
      from 0.5.19 on.
    - Null where that cannot be told.
  returned: with O(state=stopped)
  type: bool
  sample: true
leftovers:
  description: Files that servers leave in C(/dev/shm) and C(/tmp), and what became of them.
  returned: with O(state=stopped)
  type: list
  elements: dict
  contains:
    path:
      description: Path of the file.
      type: str
      returned: always
      sample: /dev/shm/sgl_shm_4711
    size_mib:
      description: What it takes, in MiB.
      type: float
      returned: always
      sample: 2048.0
    action:
      description: V(removed), V(kept), or in check mode V(would_remove).
      type: str
      returned: always
      sample: removed
    reason:
      description: Why.
      type: str
      returned: always
      sample: this server used it, and no live process does
port:
  description: The port after the stop. Empty where none is known.
  returned: with O(state=stopped)
  type: dict
  contains:
    number:
      description: Its number.
      type: int
      returned: when a port is known
      sample: 30000
    free:
      description: Whether nobody listens on it.
      type: bool
      returned: when a port is known
      sample: true
    listener:
      description: Who listens. Empty where nobody does.
      type: str
      returned: when a port is known
      sample: ""
adopted:
  description: ID of the release that was made from a server which was taken over. Empty where none was. In check mode,
    the one that would be made now.
  returned: with O(state=stopped)
  type: str
  sample: ""
unmanaged:
  description: The server that somebody started by hand and that has, or will have, the port. Null where there is none.
  returned: with O(state=stopped)
  type: dict
  contains:
    pid:
      description: PID of its main process.
      type: int
      returned: always
      sample: 48211
    start_ticks:
      description: Its start time in clock ticks after boot.
      type: int
      returned: always
      sample: 891274
    user:
      description: Who it runs as.
      type: str
      returned: always
      sample: alice
    name:
      description: Its name as C(ps) shows it.
      type: str
      returned: always
      sample: python3
    command:
      description: Its command line, without secrets.
      type: list
      elements: str
      returned: always
      sample: [python3, -m, sglang.launch_server, --model-path, /models/llama]
    listening:
      description: Whether it listens already.
      type: bool
      returned: always
      sample: true
    supervisor:
      description: Who would start it again. Empty where nobody does.
      type: str
      returned: always
      sample: ""
steps:
  description: What was done, in order, and how long each took.
  returned: with O(state=stopped)
  type: list
  elements: dict
  contains:
    name:
      description: V(find), V(adopt), V(drain), V(end), V(leftovers) or V(port).
      type: str
      returned: always
      sample: end
    seconds:
      description: How long it took.
      type: float
      returned: always
      sample: 4.3
reason:
  description: Why the server died right after its start, as RV(inferops.sglang.sglang_wait_ready#module:reason).
  returned: when the server died right after its start
  type: str
  sample: missing_dependency
log_tail:
  description: The last lines of its log, without secrets.
  returned: when the server died right after its start
  type: list
  elements: str
  sample: ["/usr/bin/python3: No module named sglang"]
"""

from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_process import main

if __name__ == "__main__":
    main()
