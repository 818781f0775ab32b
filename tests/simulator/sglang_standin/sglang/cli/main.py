# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ``sglang`` command."""

from __future__ import annotations

import argparse

from sglang.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser(prog="sglang")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", add_help=False, help="launch a server")
    commands.add_parser("version", help="show the version")
    options, rest = parser.parse_known_args()
    if options.command == "version":
        print("sglang version: " + __version__)
        return

    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    # The model may stand alone as the first argument.
    if rest and not rest[0].startswith("-"):
        rest = ["--model-path", *rest]
    run_server(prepare_server_args(rest))


if __name__ == "__main__":
    main()
