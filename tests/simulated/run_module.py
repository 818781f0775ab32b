# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module's real main() in a process of its own: run_module.py NAME, arguments as JSON on standard input."""

from __future__ import annotations

import importlib
import json
import os
import sys
from unittest import mock

from ansible.module_utils import basic

COLLECTION = "ansible_collections.inferops.sglang.plugins."


def given(arguments):
    """The context in which a module finds its arguments."""
    try:
        from ansible.module_utils.testing import patch_module_args
    except ImportError:  # ansible-core 2.18
        raw = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
        return mock.patch.object(basic, "_ANSIBLE_ARGS", raw)
    return patch_module_args(arguments)


def simulate():
    """Let the module find the folders of the simulated host."""
    if os.environ.get("HOST_PID_NAMESPACE"):
        # Its processes may be those of a namespace,
        procfs = importlib.import_module(COLLECTION + "module_utils.system.procfs")
        procfs._INITIAL_PID_NAMESPACE = int(os.environ["HOST_PID_NAMESPACE"])
    if os.environ.get("FAKEGPU_DEV"):
        # it has its device nodes in a folder of its own,
        importlib.import_module(COLLECTION + "module_utils.gpu.device_nodes").DEV = os.environ["FAKEGPU_DEV"]
    if os.environ.get("FAKEGPU_DIR"):
        # its audit log and its journal, which it has none of,
        audit = importlib.import_module(COLLECTION + "module_utils.system.audit")
        audit.DEFAULT_PATH = os.path.join(os.environ["FAKEGPU_DIR"], "audit", "audit.jsonl")
        audit.JOURNAL_SOCKET = os.path.join(os.environ["FAKEGPU_DIR"], "journal.socket")
        # the kernel modules that it has loaded,
        reset_drm = importlib.import_module(COLLECTION + "module_utils.gpu.reset_drm")
        reset_drm.ROOT = os.path.join(os.environ["FAKEGPU_DIR"], "kernel")
    # and its shared memory and temporary files, which are none unless the test says so: those of this machine are
    # nobody's business, and many where tests have run for long.
    leftovers = importlib.import_module(COLLECTION + "module_utils.sglang.processes.leftovers")
    none = os.path.join(os.environ.get("FAKEGPU_DIR", "/"), "no_such_folder")
    leftovers.SHARED_MEMORY = os.environ.get("STANDIN_SHM_DIR", none)
    leftovers.TEMPORARY = os.environ.get("STANDIN_TMP_DIR", none)


def run(name, arguments):
    """Run it; ends as a module does, by SystemExit."""
    simulate()
    if name == "read_gpus":  # no module, but a part of them
        return importlib.import_module(name).main(arguments)
    module = importlib.import_module(COLLECTION + "modules." + name)
    with given(arguments):
        module.main()


if __name__ == "__main__":
    run(sys.argv[1], json.load(sys.stdin))
