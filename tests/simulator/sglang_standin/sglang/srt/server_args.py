# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's arguments: parsed, then adjusted as the release does it.

Releases before 0.5.23 adjust while the object is made. From 0.5.23 on making it checks nothing;
``resolve_once()`` does, and ``resolved_dict()`` has the outcome, while the attributes stay as they were asked for.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import logging
from typing import Any, Dict, List, Sequence

from sglang.srt.config_file import FLAG, merge_config
from sglang.srt.model_config import ModelConfig
from sglang.srt.options import OPTIONS, SWITCHES
from sglang.srt.resolution import check, resolve
from sglang.version import since

RESOLVES_LATE = since(23)


class _Behaviour:
    """What ServerArgs does beside having fields."""

    def __post_init__(self) -> None:
        if not RESOLVES_LATE:
            self.model_config = resolve(self)

    @classmethod
    def from_cli_args(cls, namespace: argparse.Namespace) -> ServerArgs:
        return cls(**{name: getattr(namespace, name) for name in field_names()})

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        for option in OPTIONS:
            option.add_to(parser)
        # Named with "=", the file is accepted and never read.
        parser.add_argument(FLAG, help="read options from a YAML file")

    def get_model_config(self) -> ModelConfig:
        return getattr(self, "model_config", None) or ModelConfig(self.model_path)

    def check_server_args(self) -> None:
        """Refuse what does not go together, by AssertionError."""
        check(self.effective())

    def effective(self) -> ServerArgs:
        """The arguments as the server will run them."""
        if not RESOLVES_LATE:
            return self
        self.resolve_once()
        return self._resolved

    if RESOLVES_LATE:

        def resolve_once(self) -> None:
            if not hasattr(self, "_resolved"):
                resolved = copy.copy(self)
                resolved.model_config = resolve(resolved)
                resolved._resolved = resolved
                self._resolved = resolved

        def resolved_dict(self) -> Dict[str, Any]:
            return dataclasses.asdict(self.effective())


ServerArgs = dataclasses.make_dataclass(
    "ServerArgs",
    [(option.field, Any, option.default) for option in OPTIONS],
    bases=(_Behaviour,),
    namespace={"__module__": __name__, "__doc__": "All arguments of one server."},
)


def prepare_server_args(argv: Sequence[str]) -> ServerArgs:
    """Parse a command line. Unknown options and bad values end the process with exit code 2, as argparse does.

    :raises ValueError: when the file of ``--config`` cannot be used.
    """
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    namespace = parser.parse_args(merge_config(argv, SWITCHES))
    logging.basicConfig(
        level=namespace.log_level.upper(),
        format="[%(asctime)s] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
    return ServerArgs.from_cli_args(namespace)


def fields_of(server_args: ServerArgs) -> Dict[str, Any]:
    """Every argument with its value."""
    return {name: getattr(server_args, name) for name in field_names()}


def field_names() -> List[str]:
    return [option.field for option in OPTIONS]
