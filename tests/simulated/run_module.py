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
    if os.environ.get("FAKEGPU_DEV"):
        # It has its device nodes in a folder of its own,
        importlib.import_module(COLLECTION + "module_utils.gpu.device_nodes").DEV = os.environ["FAKEGPU_DEV"]
    if os.environ.get("STANDIN_SHM_DIR"):
        # and its shared memory and temporary files.
        leftovers = importlib.import_module(COLLECTION + "module_utils.sglang.processes.leftovers")
        leftovers.SHARED_MEMORY, leftovers.TEMPORARY = os.environ["STANDIN_SHM_DIR"], os.environ["STANDIN_TMP_DIR"]


def run(name, arguments):
    """Run it; ends as a module does, by SystemExit."""
    simulate()
    module = importlib.import_module(COLLECTION + "modules." + name)
    with given(arguments):
        module.main()


if __name__ == "__main__":
    run(sys.argv[1], json.load(sys.stdin))
