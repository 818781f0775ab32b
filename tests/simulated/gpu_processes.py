# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holders in the conditions that public bug reports tell of, and modules that run in odd places."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import ansible
import pytest

from .control_groups import freeze, join
from .waiting import is_alive, wait_until

NOBODY = 65534
NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root, for other users and namespaces")
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc")


# ---- looking at processes


def state(pid):
    """The kernel's letter for a process, "" where there is none."""
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def children(pid):
    """The PIDs of a process's children, zombies included."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return sorted(found)


def living(folder, program):
    """The live processes of a simulated host (told by its folder in their environment) with this word as argument."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            here = ("FAKEGPU_DIR=%s" % folder).encode() in (process / "environ").read_bytes().split(b"\0")
            if here and any(program in os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0")):
                found.append(int(process.name))
        except OSError:
            continue
    return found


# ---- holders


def dead_pid():
    """The PID of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def end_leader(held):
    """Kill the process of a holder and reap it, so that only its child lives."""
    held["process"].kill()
    held["process"].wait()
    wait_until(lambda: state(held["pid"]) == "")


def frozen_holder(host, groups, gpu, mib, *options, **popen):
    """A holder that nothing can end: in state D, also after SIGKILL, until its group is thawed."""
    group = groups.freezer()
    held = host.hold(gpu, mib, *options, **popen)
    for pid in sorted({held["pid"], held["child"]}):
        join(group, pid)
    freeze(group)
    wait_until(lambda: state(held["pid"]) == "D")
    return {**held, "group": group}


def holder_in_namespace(host, gpu, mib, *options):
    """A holder in a PID namespace of its own, as in a container; `pid` is its PID on the host, `inside` the other."""
    process = subprocess.Popen(
        [*UNSHARE, sys.executable, str(host.simulator), "hold", "--gpu", str(gpu), "--mib", str(mib), *options],
        env=host.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    host.processes.append(process)
    word, inside = process.stdout.readline().split()
    assert word == "ready"
    (pid,) = children(process.pid)
    host.others.append(pid)
    return {"process": process, "pid": pid, "inside": int(inside)}


def program(host, name):
    """A Python whose executable has another name, and the environment that it needs: /proc/PID/exe shows that name."""
    binaries = host.folder / "programs"
    binaries.mkdir(exist_ok=True)
    copy = binaries / name
    shutil.copy(os.path.realpath(sys.executable), copy)
    return {"executable": copy, "env": {"PYTHONHOME": sys.base_prefix}}


def script(host, code, *words, **popen):
    """Run a Python program in the host's environment, with fakegpu to import; its Popen, ended after the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        env={**host.environment, "PYTHONPATH": str(host.simulator.parent)},
        stdout=subprocess.PIPE,
        text=True,
        **popen,
    )
    host.processes.append(process)
    return process


# Starts the holder of its command line; does not reap it; waits.
PARENT = """
import subprocess, sys, time
subprocess.Popen(sys.argv[1:])
time.sleep(600)
"""

# The same, again and again, as a supervisor that nobody knows does.  By forks: the next one is there at once, however
# long a new Python would take on a machine that is busy.
FORKS_AGAIN = """
import fakegpu, os, sys, time
for _ in range(30):
    pid = os.fork()
    if pid == 0:
        fakegpu.main(sys.argv[3:])
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(0.02)
time.sleep(600)
"""


def held_by_child(host, code, gpu, mib, *options, **popen):
    """A holder that is the child of a program; `parent` is that."""
    hold = [sys.executable, str(host.simulator), "hold", "--gpu", gpu, "--mib", mib, *options]
    parent = script(host, code, *hold, **popen)
    word, *pids = parent.stdout.readline().split()
    assert word == "ready", "the holder did not start"
    host.others.extend(int(pid) for pid in pids)
    return {"parent": parent, "pid": int(pids[0]), "child": int(pids[-1])}


def kill(pid, number=signal.SIGKILL):
    """Send a signal and wait for the end, also of somebody else's child."""
    os.kill(pid, number)
    wait_until(lambda: not is_alive(pid))


# ---- modules that run elsewhere


def as_nobody(host):
    """What makes Host.module run a module as the user nobody; skips where that cannot be."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    python = "/usr/bin/python3"
    collection = importlib.util.find_spec("ansible_collections.inferops.sglang").submodule_search_locations[0]
    packages = [str(pathlib.Path(collection).parents[2]), str(pathlib.Path(ansible.__file__).parents[1])]
    host.environment["PYTHONPATH"] = os.pathsep.join(packages)
    host.library.chmod(0o755)
    launcher = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    works = subprocess.run(
        [*launcher, python, "-c", "import ansible, pynvml, ansible_collections.inferops.sglang"],
        env=host.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if works.returncode:
        pytest.skip("nobody cannot use %s with %s: %s" % (python, packages, works.stderr.strip()[-200:]))
    return {"launcher": launcher, "interpreter": python}
