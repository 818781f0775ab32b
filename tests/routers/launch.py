# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a real router by its own command line: launch.py KIND WORD...

The routers are programs in Rust; what their packages require beside are Python servers for other purposes, which would
take longer to install than all tests of this folder. One such part of sglang-router is imported in any case, and is
replaced by nothing here.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

# The module that a router's command line is in.
COMMANDS = {"sglang-router": "sglang_router.cli", "smg": "smg.cli"}

if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    unused = ModuleType("sglang_router.mini_lb")
    unused.MiniLoadBalancer = None
    sys.modules["sglang_router.mini_lb"] = unused
    sys.argv = [kind, "launch", *words]
    sys.exit(importlib.import_module(COMMANDS[kind]).main())
