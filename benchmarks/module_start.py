# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module costs before it does anything: its imports, what Ansible sends to the host, and a whole run.

The whole run is what Ansible does on a host: the payload that ansible-core itself builds, run by Python, on two idle
simulated GPUs.  ansible.builtin.ping, which does nothing, is built and run in the same way.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Sequence

import measure
import paths
from simulation import simulated

PING = "ansible.builtin.ping"
MODULES = ("gpu_info", "gpu_reclaim", "gpu_wait_free")
ARGUMENTS: Dict[str, Dict[str, Any]] = {"gpu_wait_free": {"stable_for": 0, "timeout": 5}}
PACKAGES = ("Ansible's module_utils", "this collection", "the standard library, for it")

_LINE = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)$", re.MULTILINE)
_BASIC = "ansible.module_utils.basic"


# ---------------------------------------------------------------------------------------------------------- imports


def import_seconds(trace: str) -> Dict[str, float]:
    """Seconds by package, from what `python -X importtime` writes for a payload.

    A module of the standard library counts for Ansible where Ansible needs it first, and Python's own
    start does not count.
    """
    seconds = dict.fromkeys(PACKAGES, 0.0)
    ansible_done = False
    begun = False
    for microseconds, name in _LINE.findall(trace):
        if not begun:  # "site" is the last that Python imports for itself
            begun = name == "site"
            continue
        if name.split(".")[0] == "ansible_collections":
            package = PACKAGES[1]
        elif not ansible_done or name.split(".")[0] == "ansible":
            package = PACKAGES[0]
        else:
            package = PACKAGES[2]
        seconds[package] += int(microseconds) / 1e6
        ansible_done = ansible_done or name == _BASIC
    return seconds


def pynvml_milliseconds() -> float:
    """The import of pynvml.  (The trace of a payload does not show what is imported by importlib.)"""
    command = [sys.executable, "-X", "importtime", "-c", "import pynvml"]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = re.search(r"\|\s+(\d+) \| pynvml$", done.stderr, re.MULTILINE)
    if found is None:
        raise OSError("pynvml cannot be imported")
    return int(found.group(1)) / 1000


# ---------------------------------------------------------------------------------------------------------- payload


@dataclass(frozen=True)
class Payload:
    """What Ansible would send for one module: a Python script; bytes is its size."""

    path: Path
    bytes: int


def build_here(folder: str, names: Sequence[str]) -> None:
    """In a process whose environment names the collections: write the payload of each module into the folder."""
    from ansible.executor import module_common
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins import loader
    from ansible.template import Templar

    loader.init_plugin_loader()
    for name in names:
        found = loader.module_loader.find_plugin_with_context(name)
        given: Dict[str, Any] = {
            "module_name": found.resolved_fqcn,
            "module_path": found.plugin_resolved_path,
            "module_args": dict(
                ARGUMENTS.get(name.rsplit(".", 1)[1], {}),
                _ansible_check_mode=False,
                _ansible_remote_tmp=folder,
                _ansible_tracebacks_for=[],
            ),
            "templar": Templar(loader=DataLoader()),
            "task_vars": {
                "ansible_python_interpreter": sys.executable,
                "ansible_playbook_python": sys.executable,
            },
            "module_compression": "ZIP_DEFLATED",
            "remote_is_local": True,
        }
        # Its arguments change from version to version.
        known = inspect.signature(module_common.modify_module).parameters
        built = module_common.modify_module(**{key: value for key, value in given.items() if key in known})
        data = built.b_module_data if hasattr(built, "b_module_data") else built[0]
        (Path(folder) / (name + ".py")).write_bytes(data)


def build(folder: Path, collections: Path, names: Sequence[str]) -> Dict[str, Payload]:
    """The payload of each module.  Raises OSError where this ansible-core builds it in another way."""
    environment = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_DEPRECATION_WARNINGS="false")
    # Its Python path must not have the collection, which Ansible's own loader brings.
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, __file__, "--build-here", str(folder), *names], env=environment, check=False)
    if done.returncode:
        raise OSError("ansible-core could not build the modules, see above")
    return {name: Payload(folder / (name + ".py"), (folder / (name + ".py")).stat().st_size) for name in names}


def run(payload: Payload, environment: Dict[str, str], *options: str) -> str:
    """Run it, with these options of Python; returns what it wrote to standard error.  Raises OSError if it failed."""
    done = subprocess.run(
        [sys.executable, *options, str(payload.path)],
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise OSError("%s printed no result: %s" % (payload.path.name, done.stderr)) from None
    if result.get("failed"):
        raise OSError("%s failed: %s" % (payload.path.name, result.get("msg")))
    return done.stderr


# ----------------------------------------------------------------------------------------------------------- report


def fill(report: measure.Report, repeats: int) -> None:
    """All measurements."""
    names = [PING, *(paths.FQCN + module for module in MODULES)]
    with simulated(2) as simulation, paths.collections() as collections, tempfile.TemporaryDirectory() as name:
        payloads = build(Path(name), collections, names)
        environment = dict(simulation.environment)
        environment.pop("PYTHONPATH")  # the payload brings all that it needs
        work = {name: functools.partial(run, payloads[name], environment) for name in names}
        seconds = measure.in_turn(work, repeats)
        imports = {
            name: [import_seconds(run(payloads[name], environment, "-X", "importtime")) for _repeat in range(repeats)]
            for name in names
        }
    for name in names:
        practice = "" if name == PING else "%s: whole run" % PING
        report.add("%s: whole run" % name, seconds[name], practice=practice)
    for name in names:
        for package in PACKAGES:
            values = [1000 * found[package] for found in imports[name]]
            if max(values):
                report.add("%s: imports of %s" % (name, package), values, unit="ms")
    report.add(
        "import of pynvml, which is installed on the host",
        [pynvml_milliseconds() for _repeat in range(repeats)],
        unit="ms",
    )
    for name, payload in payloads.items():
        practice = "" if name == PING else "%s: payload" % PING
        report.add("%s: payload" % name, [payload.bytes / 1024], unit="KiB", practice=practice)
    report.remarks += [
        "The imports are those of the payload, so that compiling its sources counts, as it does on a host.",
        "gpu_wait_free runs with stable_for 0 on idle GPUs: it takes three looks.",
    ]


def main() -> int:
    """Measure, and print the report; exit status 2 where nothing can be measured."""
    parser = measure.parser(__doc__, repeats=9)
    parser.add_argument("--build-here", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build_here:
        build_here(options.build_here[0], options.build_here[1:])
        return 0
    report = measure.Report("What a module costs before it does anything")
    try:
        fill(report, options.repeats)
    except OSError as exc:
        print("module_start.py: %s" % exc, file=sys.stderr)
        return 2
    report.show(options.json)
    return 0


if __name__ == "__main__":
    measure.command(main)
