# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe runs a real interpreter on a tiny package `sglang`."""

from __future__ import annotations

import os
import sys
import textwrap
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import parser_probe
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.parser_probe import (
    ACCEPTED,
    BROKEN,
    HUNG,
    NO_PARSER,
    NO_SGLANG,
    REFUSED,
    read_answer,
    run_probe,
)

PARSER = """
    import argparse, enum, sys

    class Mode(enum.Enum):
        FAST = "fast"

    class Args:
        def __init__(self, values):
            self.__dict__.update(values)
            self.mode, self.thing, self._hidden = Mode.FAST, object(), 1
            self.limit = float("inf")
            print("loading", "x" * 100000)
            print("warning: something", file=sys.stderr)

        def check_server_args(self):
            assert self.tp_size < 100, "tp_size is absurd"

    def prepare_server_args(argv):
        parser = argparse.ArgumentParser(prog="sglang")
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--tp-size", type=int, default=1)
        parser.add_argument("--device")
        return Args(vars(parser.parse_args(argv)))
"""
RESOLVING = """
    class Args:
        def __init__(self, argv):
            self.argv, self.resolved = argv, False

        def resolve_once(self):
            self.resolved = True

        def resolved_dict(self):
            assert self.resolved
            return {"speculative_num_steps": 3, "argv": self.argv}

        def check_server_args(self):
            assert self.resolved

    def prepare_server_args(argv):
        return Args(argv)
"""


@pytest.fixture
def probe(tmp_path):
    """Write a package and ask it."""

    def ask(server_args, argv=("--model-path", "/m"), timeout=30, version="0.5.17", secret_args=(), **environment):
        folder = tmp_path / "site"
        if server_args is not None:
            (folder / "sglang" / "srt").mkdir(parents=True)
            (folder / "sglang" / "__init__.py").write_text(f"__version__ = {version!r}\n")
            (folder / "sglang" / "srt" / "__init__.py").write_text("")
            (folder / "sglang" / "srt" / "server_args.py").write_text(textwrap.dedent(server_args))
        environment = dict({"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}, **environment)
        return run_probe(sys.executable, list(argv), environment, timeout, secret_args)

    return ask


def test_accepted(probe):
    result = probe(PARSER, ["--model-path", "/m ü \U0001f600 'q'", "--tp-size", "8"])
    assert result.status == ACCEPTED, result
    assert result.version == "0.5.17"
    assert result.fields == {
        "model_path": "/m ü \U0001f600 'q'",
        "tp_size": 8,
        "device": "cuda",
        "mode": "fast",
        "limit": "inf",
    }
    assert result.assumed_device


def test_a_device_of_the_users_own_stays(probe):
    result = probe(PARSER, ["--model-path", "/m", "--device", "cpu"])
    assert result.fields["device"] == "cpu" and not result.assumed_device


def test_no_device_is_assumed_where_an_accelerator_is_visible(probe, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: True)\n")
    result = probe(PARSER)
    assert result.fields["device"] is None and not result.assumed_device


def test_versions_that_resolve_later(probe):
    result = probe(RESOLVING, version="0.5.23")
    assert (result.status, result.version, result.fields["speculative_num_steps"]) == (ACCEPTED, "0.5.23", 3)


def test_an_argument_that_argparse_refuses(probe):
    result = probe(PARSER, ["--model-path", "/m", "--no-such-option"])
    assert result.status == REFUSED
    assert result.message == "unrecognized arguments: --no-such-option"


def test_a_configuration_that_sglang_refuses(probe):
    result = probe(PARSER, ["--model-path", "/m", "--tp-size", "100"])
    assert result.status == REFUSED
    assert result.message == "AssertionError: tp_size is absurd"


def test_no_package(probe):
    assert probe(None).status == NO_SGLANG


@pytest.mark.parametrize("code", ["import no_such_dependency", "1/0", "raise SystemExit(3)"])
def test_a_package_that_cannot_be_imported(probe, code):
    result = probe(code)
    assert result.status == NO_PARSER and result.version == "0.5.17" and result.message


def test_secret_arguments_come_in_a_file_as_they_will_for_the_server(probe):
    code = RESOLVING.replace('"argv": self.argv', '"config": open(self.argv[self.argv.index("--config") + 1]).read()')
    result = probe(code, secret_args=["admin-api-key", "api-key"])
    assert result.fields["config"] == 'admin-api-key: "no-secret"\napi-key: "no-secret"\n'


def test_the_environment_reaches_the_parser(probe):
    code = "import os\nraise ImportError(os.environ['MARK'])"
    assert probe(code, MARK="it is here").message == "ImportError: it is here"


def test_a_parser_that_hangs_is_ended(probe):
    began = time.monotonic()
    result = probe("import time\nprint('importing', flush=True)\ntime.sleep(60)", timeout=1)
    assert result.status == HUNG and "parser_timeout 1 s" in result.message and "importing" in result.message
    assert time.monotonic() - began < 20


def test_an_interpreter_that_dies(probe):
    result = probe("import os\nprint('boom', flush=True)\nos._exit(7)")
    assert result.status == BROKEN and "status 7" in result.message and "boom" in result.message


def test_an_interpreter_that_does_not_start():
    assert run_probe("/no/such/python", [], {}, 5).status == BROKEN


def test_an_answer_that_is_cut_off_is_no_answer():
    assert read_answer('{"status": "acc', 0, "").status == BROKEN


def test_nothing_of_the_probe_stays_behind(probe, childless):
    childless()
    probe(PARSER)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert parser_probe.SCRIPT.isascii()
