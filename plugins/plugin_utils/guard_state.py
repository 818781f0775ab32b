# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the guard remembers between its runs: a file on the controller, and who is at work on it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json
from ansible_collections.inferops.sglang.plugins.module_utils.system.regular_file import MIB, read_text
from ansible_collections.inferops.sglang.plugins.plugin_utils import whole_file
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_decision import Memory
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import GuardError

FORMAT = 1
_OPTION = "sglang_guard_state"
_MOST = 4 * MIB
# Seconds that a run waits for another one to have read and written the file, which takes milliseconds.
_PATIENCE = 10.0
# Seconds after which a run whose process cannot be seen, as on another controller, is taken for dead.
_LONGEST_RUN = 3600.0


@dataclass(frozen=True)
class Run:
    """A run that is switching: the process on its controller, and since when (seconds since the epoch)."""

    node: str = ""
    pid: int = 0
    start: str = ""
    since: float = 0.0


@dataclass
class State:
    """The content of the file."""

    groups: Dict[str, Memory] = field(default_factory=dict)
    run: Optional[Run] = None


def default_path() -> str:
    """Where it is kept where nobody says otherwise."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "inferops", "sglang_guard.json")


def prepare(path: str, own: bool) -> str:
    """The absolute path, whose folder is there; own: whether its folder may be made.  Raises GuardError."""
    path = os.path.abspath(os.path.expanduser(path))
    try:
        if own:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        whole_file.check_target(_OPTION, path)
    except OSError as error:
        raise GuardError(
            "%s: the folder of %s cannot be made: %s. Give a file in a folder that you may write to."
            % (_OPTION, path, error.strerror)
        ) from None
    except whole_file.FileError as error:
        raise GuardError(str(error)) from None
    return path


@contextmanager
def locked(path: str, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Keep other runs from the file for the moment.  Raises GuardError where one has it for too long."""
    try:
        descriptor = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise GuardError("%s: %s.lock cannot be opened: %s." % (_OPTION, path, error.strerror)) from None
    try:
        tries = int(_PATIENCE / 0.1)
        for number in range(tries + 1):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if number == tries:
                    raise GuardError(
                        "%s: another run has had %s for %.0f s: see who (fuser %s.lock), or give another file."
                        % (_OPTION, path, _PATIENCE, path)
                    ) from None
                sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def read(path: str) -> State:
    """The content; an empty one where there is no file yet.  Raises GuardError."""
    try:
        content = bounded_json.loads(read_text(path, _MOST), strict=True)
        return _from(content)
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise GuardError("%s: %s cannot be read: %s." % (_OPTION, path, error.strerror)) from None
    except (ValueError, TypeError, KeyError) as error:
        raise GuardError(
            "%s: %s was not written by the guard (%s). Move it away: what is in it is only how many runs have agreed, "
            "and the last switch." % (_OPTION, path, error)
        ) from None


def write(path: str, state: State) -> None:
    """Replace the content whole.  Raises GuardError."""
    content = {
        "format": FORMAT,
        "groups": {name: asdict(memory) for name, memory in sorted(state.groups.items())},
        "run": asdict(state.run) if state.run is not None else None,
    }
    try:
        whole_file.replace(_OPTION, path, json.dumps(content, indent=2) + "\n")
    except whole_file.FileError as error:
        raise GuardError(str(error)) from None


def _from(content: Any) -> State:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("it has no format %d" % FORMAT)
    named, run = content["groups"], content.get("run")
    if not isinstance(named, dict) or not all(isinstance(given, dict) for given in (*named.values(), run or {})):
        raise ValueError("it has no groups")
    groups = {name: Memory(**_typed(Memory(), memory)) for name, memory in named.items()}
    return State(groups, Run(**_typed(Run(), run)) if run is not None else None)


def _typed(model: Any, given: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields that a value of that kind has, each of its type.  Raises ValueError."""
    found = {}
    for name, usual in asdict(model).items():
        value = given.get(name, usual)
        if isinstance(usual, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not type(usual):
            raise ValueError("%s is %.60r" % (name, value))
        found[name] = value
    return found


# -- who is at work


def this_run(now: float, pid: int, start_of: Optional[Callable[[int], str]] = None) -> Run:
    """The run of a process of this controller."""
    return Run(os.uname().nodename, pid, (start_of or start_of_process)(pid), now)


def is_at_work(run: Optional[Run], own_pid: int, now: float, start_of: Optional[Callable[[int], str]] = None) -> bool:
    """Whether the run of somebody else still goes on.  A process that is gone has left nothing to wait for."""
    if run is None or not run.pid:
        return False
    here = run.node == os.uname().nodename
    if here and run.pid == own_pid:
        return False
    if here and run.start:
        return (start_of or start_of_process)(run.pid) == run.start
    return 0 <= now - run.since < _LONGEST_RUN


def start_of_process(pid: int) -> str:
    """When a process was started, as its kernel has it; "" where there is none, or no /proc."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
