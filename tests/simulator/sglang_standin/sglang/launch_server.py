# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m sglang.launch_server …``"""

from __future__ import annotations

import sys
import warnings

from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.srt.tls import serves_https


def run_server(server_args: ServerArgs) -> None:
    """Serve until stopped; leaves the process by itself, with the exit code of the release."""
    if not serves_https(server_args):
        # For the modules of the standard library that would load OpenSSL and can do without it: that takes long.
        sys.modules.setdefault("ssl", None)
    from sglang.srt.lifecycle import serve

    serve(server_args)


if __name__ == "__main__":
    warnings.warn(
        "'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
        "  Example: sglang serve --model-path <model> [options]",
        UserWarning,
        stacklevel=1,
    )
    run_server(prepare_server_args(sys.argv[1:]))
