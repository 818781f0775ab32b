# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release from a server that somebody started by hand."""

from __future__ import annotations

import json
import os
import pwd
import sys
import types
from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, Refused
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.adoption import (
    AdoptionError,
    api_key_of,
    make_release,
    server_environment,
    split_secrets,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.unmanaged import (
    Unmanaged,
    server_arguments,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc

PATHS = InstancePaths("main", etc_dir="/etc/sglang")
KEY = "sk-abcdefgh"


def test_secrets_leave_the_command_line():
    argv = (
        "python3",
        "-m",
        "sglang",
        "--api-key",
        "a",
        "--tp",
        "2",
        "--admin-api-key=b",
        "--ssl_keyfile_password",
        "c",
    )
    command = split_secrets(argv)
    assert command.words == ["python3", "-m", "sglang", "--tp", "2"]
    assert command.secrets == {"api-key": "a", "admin-api-key": "b", "ssl-keyfile-password": "c"}
    assert split_secrets(("python3", "--api-key")).secrets == {}


@pytest.mark.parametrize("words", [("--api-k", "s3cr3t"), ("--api=s3cr3t",), ("--api_ke", "s3cr3t")])
def test_a_key_behind_the_beginning_of_its_options_name_is_the_key(words):
    found = types.SimpleNamespace(arguments=words)
    assert api_key_of(found) == "s3cr3t"
    assert split_secrets(("python3", *words, "--tp", "2")).words == ["python3", "--tp", "2"]
    assert api_key_of(types.SimpleNamespace(arguments=("--tp", "2"))) is None


def test_the_environment_without_the_session():
    account = pwd.struct_passwd(("x", "", 7, 7, "", "/home/x", "/bin/sh"))
    kept = {
        "PATH": "/venv/bin:/bin",
        "NCCL_DEBUG": "INFO",
        "SGLANG_X": "1",
        "HF_TOKEN": "t",
        "CUDA_VISIBLE_DEVICES": "0",
        "http_proxy": "p",
    }
    session = {
        "SSH_CLIENT": "1",
        "TERM": "xterm",
        "TMUX": "x",
        "PWD": "/",
        "_": "/bin/x",
        "XDG_RUNTIME_DIR": "/run",
        "HOME": "/home/x",
        "INVOCATION_ID": "1",
        "BASH_FUNC_x%%": "() {}",
        "MULTI": "a\x01b",
        "INFEROPS_SGLANG_INSTANCE": "other",
    }
    assert server_environment({**kept, **session}, account) == kept
    assert server_environment({"HOME": "/elsewhere"}, account) == {"HOME": "/elsewhere"}


class Client:
    """A server that answers so."""

    def __init__(self, generate=200, info=None):
        self.generate = generate
        self.info = info
        self.posted = []

    def get(self, path, timeout):
        if self.info is None:
            raise Refused("nothing listens")
        return Answer(path, 200, json.dumps(self.info).encode(), 0.0)

    def post(self, path, payload, timeout):
        self.posted.append(path)
        if isinstance(self.generate, Exception):
            raise self.generate
        return Answer(path, self.generate, b"{}", 0.0)


@pytest.fixture
def found(tmp_path):
    proc = FakeProc(tmp_path)
    argv = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--port", "30007", "--api-key", KEY)
    environ = "PATH=%s\0TERM=xterm\0NCCL_DEBUG=INFO\0" % os.path.dirname(sys.executable)
    process = proc.add(10, argv=argv, environ=environ, uid=0)
    (tmp_path / "work").mkdir()
    proc.link(10, "cwd", str(tmp_path / "work"))
    return proc, Unmanaged(process, server_arguments(process), "127.0.0.1", 30007, True)


def test_what_a_release_is_made_of(found, tmp_path):
    proc, server = found
    info = {"tp_size": 1, "model_path": "/m", "api_key": KEY, "version": "0.5.17", "port": 30007}
    client = Client(info=info)
    release = make_release(server, PATHS, "systemd", 120.0, client, proc.procfs)
    assert client.posted == ["/generate"]
    assert os.path.isabs(release.command[0]) and os.path.samefile(release.command[0], sys.executable)
    assert release.command[1:] == [
        *("-m", "sglang.launch_server", "--model-path", "/m", "--port", "30007"),
        *("--config", "/etc/sglang/main/secrets.yaml"),
    ]
    assert release.secret_args == {"api-key": KEY} and KEY not in json.dumps(release.shown())
    assert "TERM" not in release.environment and release.environment["NCCL_DEBUG"] == "INFO"
    assert (release.manager, release.origin, release.port, release.user) == ("systemd", "adopted", 30007, "")
    assert (release.sglang_version, release.stop_timeout) == ("0.5.17", 120.0)
    assert release.working_directory == str(tmp_path / "work")
    assert release.effective == release.requested and release.effective["tp_size"] == 1
    assert KEY not in json.dumps(release.effective)


def test_without_server_info_it_is_made_all_the_same(found):
    proc, server = found
    release = make_release(server, PATHS, "systemd", 120.0, Client(), proc.procfs)
    assert (release.effective, release.sglang_version) == ({}, "")


@pytest.mark.parametrize("problem", [Refused("nothing listens"), 503])
def test_what_does_not_generate_is_not_taken_over(found, problem):
    proc, server = found
    with pytest.raises(AdoptionError, match=r"does not generate.*kill 10"):
        make_release(server, PATHS, "systemd", 120.0, Client(problem), proc.procfs)
    client = Client(problem)
    assert make_release(server, PATHS, "systemd", 1.0, client, proc.procfs, prove=False) and client.posted == []


def test_two_configuration_files_cannot_be(found):
    proc, server = found
    other = replace(server, arguments=(*server.arguments, "--config", "x.yaml"))
    with pytest.raises(AdoptionError, match=r"--api-key.*--config"):
        make_release(other, PATHS, "systemd", 120.0, Client(), proc.procfs)


def test_an_environment_that_may_not_be_read(found):
    proc, server = found
    proc.remove(10)
    with pytest.raises(AdoptionError, match="run as root"):
        make_release(server, PATHS, "systemd", 120.0, Client(), proc.procfs)


def test_the_user_of_the_release(found):
    proc, server = found
    other = replace(server, process=replace(server.process, uid=7, user="llm"))
    release = make_release(other, PATHS, "systemd", 120.0, Client(), proc.procfs)
    assert release.user == "llm"
    mine = replace(server, process=replace(server.process, uid=os.geteuid(), user="me"))
    assert make_release(mine, PATHS, "process", 120.0, Client(), proc.procfs).user == ""
