# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe runs a real interpreter on a tiny package `sglang`."""

from __future__ import annotations

import hashlib
import os
import sys
import textwrap
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import parser_probe
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import (
    ACCEPTED,
    BROKEN,
    HUNG,
    NO_PARSER,
    NO_SGLANG,
    REFUSED,
    FoundFile,
    ProbeResult,
    read_answer,
    run_probe,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed

PARSER = """
    import argparse, enum, sys

    class Mode(enum.Enum):
        FAST = "fast"

    class Args:
        def __init__(self, values):
            self.__dict__.update(values)
            self.mode, self.thing, self._hidden = Mode.FAST, object(), 1
            self.limit = float("inf")
            print("loading", "x" * 5000000)
            print("warning: something", file=sys.stderr)

        def check_server_args(self):
            assert self.tp_size < 100, "tp_size is absurd"

    class ServerArgs:
        @staticmethod
        def add_cli_args(parser):
            parser.add_argument("--model-path", "--model", required=True)
            parser.add_argument("--tp-size", type=int, default=1)
            parser.add_argument("--device")

    def prepare_server_args(argv):
        parser = argparse.ArgumentParser(prog="sglang")
        ServerArgs.add_cli_args(parser)
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
def site(tmp_path):
    """Where the package is installed."""
    return tmp_path / "site"


@pytest.fixture
def probe(site):
    """Write a package and ask it."""

    def ask(server_args, argv=("--model-path", "/m"), timeout=30, version="0.5.17", environment=None, **more):
        if server_args is not None:
            (site / "sglang" / "srt").mkdir(parents=True)
            (site / "sglang" / "__init__.py").write_text(f"__version__ = {version!r}\n")
            (site / "sglang" / "srt" / "__init__.py").write_text("")
            (site / "sglang" / "srt" / "server_args.py").write_text(textwrap.dedent(server_args))
        environment = dict({"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}, **(environment or {}))
        return run_probe(sys.executable, list(argv), environment, timeout, **more)

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


def test_no_device_is_assumed_where_an_accelerator_is_visible(probe, site):
    site.mkdir()
    (site / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: True)\n")
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


def test_a_parser_that_leaves_without_a_word_of_argparse(probe):
    result = probe("def prepare_server_args(argv):\n    print('see the manual')\n    raise SystemExit(9)")
    assert (result.status, result.message) == (REFUSED, "it ended with status 9. see the manual")


def test_all_options_are_known_even_where_the_arguments_are_refused(probe):
    options = ("--device", "--help", "--model", "--model-path", "--tp-size", "-h")
    assert probe(PARSER, ["--no-such-option"]).options == options


def test_options_are_unknown_where_the_parser_is_built_in_another_way(probe):
    assert probe(RESOLVING).options == ()


def test_a_source_tree_that_was_never_built_is_asked_for_its_installed_version(probe, site):
    (site / "sglang-0.5.19.dist-info").mkdir(parents=True)
    (site / "sglang-0.5.19.dist-info" / "METADATA").write_text("Name: sglang\nVersion: 0.5.19\n")
    assert probe(RESOLVING, version="0.0.0.dev0").version == "0.5.19"


def test_secret_arguments_come_in_a_file_as_they_will_for_the_server(probe):
    code = RESOLVING.replace('"argv": self.argv', '"config": open(self.argv[self.argv.index("--config") + 1]).read()')
    result = probe(code, secret_args=["admin-api-key", "api-key"])
    assert result.fields["config"] == 'admin-api-key: "no-secret"\napi-key: "no-secret"\n'


def test_files_that_are_not_there_yet_are_read_and_keep_their_names(probe, tmp_path):
    path = str(tmp_path / "current" / "adaptive.json")
    code = RESOLVING.replace(
        '"argv": self.argv', '"argv": self.argv, "text": open(self.argv[-1].replace("--file=", "")).read()'
    )
    spoken = ["--model-path", "/m", "--device", "cpu", "--file", path]
    result = probe(code, spoken, files={path: "ä {}\n"})
    assert result.fields == {"speculative_num_steps": 3, "argv": spoken, "text": "ä {}\n"}


def test_files_are_found_in_inline_values_and_named_in_messages(probe, tmp_path):
    path = str(tmp_path / "adaptive.json")
    code = "def prepare_server_args(argv):\n    raise ValueError(open(argv[0][7:]).read() + argv[0])"
    result = probe(code, ["--file=" + path], files={path: "bad: "})
    assert result.message == f"ValueError: bad: --file={path}"


# -- the package and its files


def test_where_the_package_is(probe, site):
    assert probe(PARSER).package == str(site / "sglang")


def test_the_package_is_known_where_it_cannot_be_imported(probe, site):
    result = probe("import no_such_dependency", targets=["sglang/__init__.py"])
    assert (result.status, result.package) == (NO_PARSER, str(site / "sglang"))
    assert result.files["sglang/__init__.py"].sha256


def test_files_of_the_package(probe, site):
    (site / "other").mkdir(parents=True)
    (site / "other" / "a.py").write_bytes(b"a\0\n")
    result = probe(PARSER, targets=["other/a.py", "sglang/no/such.py", "sglang"])
    assert result.files == {
        "other/a.py": FoundFile(str(site / "other" / "a.py"), hashlib.sha256(b"a\0\n").hexdigest()),
        "sglang/no/such.py": FoundFile(str(site / "sglang" / "no" / "such.py"), ""),
        "sglang": FoundFile(str(site / "sglang"), "", "is not a regular file"),
    }


def test_a_link_that_leads_out_is_not_followed(probe, site, tmp_path):
    (tmp_path / "secret").write_text("x")
    site.mkdir()
    (site / "out.py").symlink_to(tmp_path / "secret")
    (found,) = probe(PARSER, targets=["out.py"]).files.values()
    assert (found.sha256, found.problem) == ("", f"leads out of {site} to {tmp_path / 'secret'}")


@pytest.mark.parametrize("target", ["/etc/passwd", "../x.py", "..", "sglang/../../x.py", "sglang//x.py", "", "a\0b"])
def test_targets_that_are_no_plain_relative_paths(target):
    with pytest.raises(ValueError, match="no plain path relative to the folder"):
        run_probe("/no/such/python", [], {}, 5, targets=[target])


def test_no_package_has_no_files(probe):
    result = probe(None, targets=["sglang/__init__.py"])
    assert (result.status, result.package, result.files) == (NO_SGLANG, "", {})


# -- where and how it runs


def test_the_environment_is_all_that_the_parser_gets(probe, monkeypatch):
    monkeypatch.setenv("INTRUDER", "1")
    code = "import os\nraise ImportError('%s %s' % (os.environ['MARK'], 'INTRUDER' in os.environ))"
    assert probe(code, environment={"MARK": "it is here"}).message == "ImportError: it is here False"


def test_the_servers_working_directory_is_the_parsers(probe, tmp_path):
    code = "import os\nraise ImportError(os.getcwd())"
    assert probe(code, working_directory=str(tmp_path)).message == f"ImportError: {tmp_path}"


def test_a_wrapped_interpreter(probe, tmp_path, monkeypatch):
    """As an engine does it: a client that keeps its own environment, says things, and passes the input on."""
    monkeypatch.setenv("ENGINE_HOST", "unix:///engine")
    engine = tmp_path / "engine"
    engine.write_text(
        "#!/bin/sh\n"
        '[ "$ENGINE_HOST" ] || exit 125\n'
        "echo Pulling from library; echo Pulling >&2\n"
        'rm -rf "$TMPDIR"/inferops-sglang-*\n'  # nothing of this side is to be seen on the other
        'exec env -i PYTHONPATH="$PYTHONPATH" "$@"\n'
    )
    engine.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    seen = []

    def wrap(words, environment):
        seen.append((words, dict(environment)))
        return [str(engine), *words]

    code = RESOLVING.replace('"argv": self.argv', '"text": open(self.argv[self.argv.index("--config") + 1]).read()')
    result = probe(code, wrap=wrap, secret_args=["api-key"])
    assert result.fields["text"] == 'api-key: "no-secret"\n', result
    ((words, environment),) = seen
    assert words == [sys.executable, "-"] and "ENGINE_HOST" not in environment and "PYTHONPATH" in environment
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_wrapper_that_fails(probe):
    result = probe(PARSER, wrap=lambda words, _environment: ["/bin/sh", "-c", "echo no such image >&2; exit 125"])
    assert (result.status, result.message) == (BROKEN, "ended with status 125 and no answer. no such image")


def test_a_parser_that_hangs_is_ended(probe):
    began = time.monotonic()
    result = probe("import time\nprint('importing', flush=True)\ntime.sleep(60)", timeout=1)
    assert result.status == HUNG and "parser_timeout 1 s" in result.message and "importing" in result.message
    assert time.monotonic() - began < 20


def test_a_parser_that_no_signal_reaches_ends_itself(probe, tmp_path):
    """As in a container whose client was killed: the deaf one is in a session of its own."""
    mark = tmp_path / "mark"
    code = (
        f"import os, signal, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\ntime.sleep(60)"
    )
    assert (
        probe(code, timeout=2, wrap=lambda words, _environment: ["setsid", "--fork", "--wait", *words]).status == HUNG
    )
    pid = int(mark.read_text())
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}/fd/0"):
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


def test_an_interpreter_that_dies(probe):
    result = probe("import os\nprint('boom', flush=True)\nos._exit(7)")
    assert result.status == BROKEN and "status 7" in result.message and "boom" in result.message


def test_an_interpreter_that_does_not_start():
    assert run_probe("/no/such/python", [], {}, 5) == ProbeResult(
        BROKEN, message="could not be started: there is no program /no/such/python."
    )


@pytest.mark.parametrize("out", ["", 'm:{"status": "acc', '{"status": "accepted"}', 'x m:{"status": "accepted"}'])
def test_what_is_not_a_whole_line_with_the_marker_is_no_answer(out):
    assert read_answer(Completed(0, out), 5, "m:").status == BROKEN


def test_what_an_interpreter_says_before_it_runs_the_script_does_no_harm():
    out = 'hello from a .pth file\nm:{"status": "accepted", "fields": {"a": 1}}\n'
    assert read_answer(Completed(0, out), 5, "m:") == ProbeResult(ACCEPTED, fields={"a": 1})


def test_nothing_of_the_probe_stays_behind(probe, childless, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    childless()
    probe("import time\ntime.sleep(60)", timeout=1, secret_args=["api-key"])
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert parser_probe.SCRIPT.isascii()
