# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m sglang.bench_serving …``: the client up to 0.5.14, and a shim from then on."""

from __future__ import annotations

import os
import warnings

from sglang.version import since

if since(15):
    from sglang.benchmark.serving import *  # noqa: F403
    from sglang.benchmark.serving import build_parser, cli_main, run_benchmark  # noqa: F401

    warnings.warn(
        "`sglang.bench_serving` is deprecated; use `sglang.benchmark.serving` instead.", FutureWarning, stacklevel=1
    )
else:
    _SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "benchmark", "standin_client.py")
    with open(_SOURCE) as _stream:
        exec(compile(_stream.read(), _SOURCE, "exec"), globals())

if __name__ == "__main__":
    # The early releases have no function for it.
    args = build_parser().parse_args()
    run_benchmark(args)
