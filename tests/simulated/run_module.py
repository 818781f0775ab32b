# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module's real main() in a process of its own: run_module.py NAME, arguments as JSON on standard input."""

from __future__ import annotations

import importlib
import json
import os
import sys

from ansible.module_utils import basic

COLLECTION = "ansible_collections.inferops.sglang.plugins."

if os.environ.get("FAKEGPU_DEV"):
    # The simulated host has its device nodes in a folder of its own.
    importlib.import_module(COLLECTION + "module_utils.gpu.device_nodes").DEV = os.environ["FAKEGPU_DEV"]
if os.environ.get("STANDIN_SHM_DIR"):
    # So has it its shared memory and temporary files.
    leftovers = importlib.import_module(COLLECTION + "module_utils.sglang.leftovers")
    leftovers.SHARED_MEMORY, leftovers.TEMPORARY = os.environ["STANDIN_SHM_DIR"], os.environ["STANDIN_TMP_DIR"]

module = importlib.import_module(COLLECTION + "modules." + sys.argv[1])
arguments = json.load(sys.stdin)
try:
    from ansible.module_utils.testing import patch_module_args
except ImportError:  # ansible-core 2.18
    from unittest import mock

    raw = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    context = mock.patch.object(basic, "_ANSIBLE_ARGS", raw)
else:
    context = patch_module_args(arguments)
with context:
    module.main()
