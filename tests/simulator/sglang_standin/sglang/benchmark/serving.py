# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m sglang.benchmark.serving …``, which there is from 0.5.15 on."""

from __future__ import annotations

import os

from sglang.version import since

if not since(15):
    raise ModuleNotFoundError("No module named 'sglang.benchmark.serving'", name="sglang.benchmark.serving")

# What the client uses are globals of this very module, as in the real one, in every release.
_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin_client.py")
with open(_SOURCE) as _stream:
    exec(compile(_stream.read(), _SOURCE, "exec"), globals())

if __name__ == "__main__":
    cli_main()  # noqa: F821
