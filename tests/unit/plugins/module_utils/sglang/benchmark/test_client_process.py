# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import pwd
import stat
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark import client_process
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_process import (
    ClientError,
    ClientProcess,
    Launch,
    read_events,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

MARK = "m:"
NONCE, OTHER = "0" * 16, "1" * 16
KEY = "kq-2f5d81aa"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("", []),
        ('noise\nm:{"event": "client"}\n\nm:{"event": "done"}\n', ["client", "done"]),
        ('m:{"event": "client"}\nm:{"event": "do', ["client"]),  # not whole yet
        ('x m:{"event": "client"}\n', []),
        ("m:{}\nm:[]\nm:17\nm:{nothing\n" + 'm:{"event": 3}\n', []),
        ("m:" + "[" * 200 + "\n", []),
    ],
)
def test_events(text, events):
    assert [event["event"] for event in read_events(text, MARK)] == events


def make(tmp_path, nonce=NONCE):
    return ClientProcess(tmp_path / "main.benchmark", ProcFs(), nonce)


@pytest.fixture
def quick(monkeypatch):
    """A script that says who it is, and stays until its file is gone."""
    monkeypatch.setattr(
        client_process,
        "SCRIPT",
        "import json, os, sys, time\n"
        "def main(task):\n"
        "    said = {'event': 'client', 'key': task['api_key'], 'ids': [os.getuid(), os.getgid()]}\n"
        "    print(task['marker'] + json.dumps(said), flush=True)\n"
        "    print('to the log', file=sys.stderr, flush=True)\n"
        "    while os.path.exists(task['alive']) or task.get('stays'):\n"
        "        time.sleep(0.01)\n",
    )
    monkeypatch.setattr(client_process, "_GOES", 0.3)


def wait(condition):
    import time

    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("stays", [False, True])
def test_its_life(tmp_path, quick, stays, childless):
    client = make(tmp_path)
    client.start(Launch([sys.executable, "-"], {"PATH": os.environ["PATH"]}), {"api_key": KEY, "stays": stays})
    wait(client.events)
    # Nothing secret but through its standard input.
    (event,) = client.events()
    assert event["key"] == KEY
    pid = client.identity.pid
    for name in ("cmdline", "environ"):
        with open("/proc/%d/%s" % (pid, name), "rb") as stream:
            assert KEY.encode() not in stream.read()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in client.folder.iterdir()}
    # In a container another user looks for the first one.
    assert modes == {"alive": 0o644, "process.json": 0o644, "events": 0o600, "log": 0o600}
    assert client.running() and client.status is None and client.log([]) == ["to the log"]
    assert os.getsid(pid) == os.getpgid(pid) == pid

    # The next part finds it, another run does not take it.
    later = make(tmp_path)
    assert later.attach() and later.identity == client.identity and later.running()
    other = make(tmp_path, OTHER)
    assert not other.attach()
    with pytest.raises(ClientError, match=r"PID %d" % pid) as error:
        other.refuse_other()
    assert error.value.reason == "busy" and client.running()

    client.end()
    assert not client.running() and client.status == (-9 if stays else 0)
    client.remove()
    assert not client.folder.exists() and not make(tmp_path).attach()
    client.end()  # again
    childless()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_as_another_user(tmp_path, quick):
    account = pwd.getpwnam("nobody")
    client = make(tmp_path)
    client.start(Launch(["/usr/bin/python3", "-"], {}, account), {"api_key": KEY})
    wait(client.events)
    client.end()
    (event,) = client.events()
    assert event["ids"] == [account.pw_uid, account.pw_gid] and event["key"] == KEY


def test_what_is_left_of_a_run_that_is_gone_is_cleared_up(tmp_path, quick):
    client = make(tmp_path)
    client.start(Launch([sys.executable, "-"], {}), {"api_key": ""})
    client.alive_file.unlink()
    wait(lambda: not client.running())
    other = make(tmp_path, OTHER)
    other.refuse_other()
    assert not other.folder.exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": "x", "start_time": 1}', '{"pid": 1}', "\x00"])
def test_a_record_that_is_none(tmp_path, text):
    client = make(tmp_path)
    client.folder.mkdir()
    (client.folder / "process.json").write_text(text)
    assert not client.attach()
    client.refuse_other()
    assert not client.folder.exists()


def test_a_process_of_another_boot_is_nobody(tmp_path):
    client = make(tmp_path)
    client.folder.mkdir()
    me = ProcFs().identity(os.getpid())
    record = {"nonce": OTHER, "pid": me.pid, "start_time": me.start_time, "boot_id": "another"}
    (client.folder / "process.json").write_text(json.dumps(record))
    client.refuse_other()
    assert not client.folder.exists()


def test_a_program_that_is_missing(tmp_path):
    client = make(tmp_path)
    with pytest.raises(ClientError, match="/no/such/python cannot be started") as error:
        client.start(Launch(["/no/such/python", "-"], {}), {})
    assert error.value.reason == "client_failed" and not client.folder.exists()


def test_a_link_in_place_of_the_folder_leads_nowhere(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("stays")
    client = make(tmp_path)
    client.folder.symlink_to("elsewhere")
    client.remove()
    assert not client.folder.exists() and (tmp_path / "elsewhere" / "file").exists()


def test_without_files_in_memory(tmp_path, quick, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    client = make(tmp_path)
    client.start(Launch([sys.executable, "-"], {}), {"api_key": KEY})
    wait(client.events)
    client.end()
    assert client.events()[0]["key"] == KEY


def test_touching(tmp_path):
    client = make(tmp_path)
    client.touch()  # nothing is there
    client.folder.mkdir()
    client.alive_file.write_bytes(b"")
    os.utime(client.alive_file, (1, 1))
    client.touch()
    assert client.alive_file.stat().st_mtime > 1
