# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that somebody planted where the modules read, write or clean up."""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import stat
import subprocess
import threading
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.models_dir import inspect_model
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import current_since
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import read_text, write_text
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.leftovers import Leftovers, Scene
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import (
    Launch,
    PidFileError,
    ServerProcessError,
    exclusive,
    read_pid_file,
    spawn,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import ReleaseError, read_release
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import read_proof
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.shared_files import FileUsers

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
EVE = 4242


def pipe(path):
    os.mkfifo(str(path))


def giant(path):
    path.touch()
    os.truncate(str(path), 1 << 38)


def deep(path):
    path.write_text("[" * 90_000)


def digits(path):
    path.write_text('{"pid": %s}' % ("7" * 100_000))


def device(path):
    path.symlink_to("/dev/zero")


def loop(path):
    path.symlink_to(path)


def folder(path):
    path.mkdir()


PLANTED = [pipe, giant, deep, digits, device, loop, folder]


@pytest.fixture(params=PLANTED, ids=lambda plant: plant.__name__)
def plant(request):
    """Plants something, and sees to it that whoever reads it is done soon."""
    began = time.monotonic()
    yield request.param
    assert time.monotonic() - began < 10


def test_a_planted_configuration_of_a_model_is_refused(plant, tmp_path):
    plant(tmp_path / "config.json")
    (tmp_path / "model.safetensors").touch()
    _model, checks = inspect_model("model_path", str(tmp_path))
    assert checks[0].status == "failed" and "config.json" in checks[0].message
    assert checks[0].message.isprintable()


def test_a_planted_index_of_weights_tells_nothing(plant, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    plant(tmp_path / "model.safetensors.index.json")
    _model, checks = inspect_model("model_path", str(tmp_path))
    assert [check.status for check in checks] == ["ok"]


def test_what_a_models_files_say_is_shown_and_not_done(tmp_path):
    evil = "\x1b[2J{{ lookup('pipe', 'id') }}\u202e"
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [evil], "vocab_size": 7}))
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": evil, "b": "/etc/shadow"}}))
    _model, (check,) = inspect_model("model_path", str(tmp_path))
    assert check.status == "failed" and check.message.isprintable() and "\\x1b[2J" in check.message


def test_a_planted_pid_file_names_nobody(plant, tmp_path):
    plant(tmp_path / "main.json")
    with pytest.raises(PidFileError):
        read_pid_file(tmp_path / "main.json")


def test_a_planted_release_proof_or_note_is_none(plant, tmp_path):
    paths = InstancePaths("main", state_dir=str(tmp_path))
    kept = paths.release_dir("r1")
    kept.mkdir(parents=True)
    plant(kept / "release.json")
    plant(kept / "proof.json")
    plant(pathlib.Path(paths.current_since_file))
    with pytest.raises(ReleaseError):
        read_release(kept)
    assert read_proof(paths, "r1") is None
    paths.current_link.symlink_to("releases/r1")
    since = current_since(paths, ProcFs())
    assert since is not None and since.ticks is None


@pytest.mark.parametrize("make", [pipe, device, loop, folder])
def test_a_planted_log_is_no_log(make, tmp_path):
    make(tmp_path / "main.log")
    (line,) = log_tail.read_lines(str(tmp_path / "main.log"))
    assert "cannot be read" in line
    assert log_tail.read_start(str(tmp_path / "main.log")) == ""
    with pytest.raises(OSError):
        read_text(tmp_path / "main.log")


def test_a_log_of_a_gigabyte_without_a_line_break_is_read_at_its_end(tmp_path):
    log = tmp_path / "main.log"
    with open(log, "wb") as stream:
        stream.truncate(1 << 30)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\xff\xfe\x00\x1b[2Jbinary" + b"A" * 600_000 + b"\nlast\x1b]0;t\x07 line\x9b2J\x85\n")
    began = time.process_time()
    lines = log_tail.read_lines(str(log))
    assert lines == ["last line\ufffd2J\ufffd"] and time.process_time() - began < 2


LINES = [
    "\x1b]52;c;aaaa\x07",
    "\x1b[2J",
    "\x9b2J",
    "\u202eevil",
    "a\rb",
    "\x00",
    "\udcff",
    "v\u200bllm",
    "\x1bP0;1|x\x1b\\",
]


@pytest.mark.parametrize("line", LINES, ids=repr)
def test_no_line_of_a_log_moves_a_terminal_or_hides(line):
    for shown in log_tail.clean(line + "\n" + line * 10_000):
        assert shown.isprintable() and re.search("[\x1b\u200b\u202e]", shown) is None


# -- where the server's user may write, and root writes too


@AS_ROOT
def test_a_pid_file_of_a_user_names_only_processes_of_that_user(tmp_path):
    path = tmp_path / "main.json"
    mine = ProcFs().identity(os.getpid())
    record = {
        "pid": mine.pid,
        "start_ticks": mine.start_time,
        "boot_id": ProcFs().boot_id(),
        "release": "",
        "command_sha256": "",
    }
    path.write_text(json.dumps(record))
    assert read_pid_file(path).identity == mine  # root wrote it
    os.chown(str(path), EVE, EVE)
    with pytest.raises(PidFileError, match="belongs to user 4242, and names the process %d of root" % mine.pid):
        read_pid_file(path)
    own = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.setuid(EVE))
    try:
        path.write_text(json.dumps(dict(record, pid=own.pid)))
        assert read_pid_file(path).pid == own.pid
        path.write_text(json.dumps(dict(record, pid=1 << 22)))
        assert read_pid_file(path).pid == 1 << 22  # of nobody
    finally:
        own.kill()
        own.wait()


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_no_server_writes_its_log_into_another_file(link, tmp_path):
    target = tmp_path / "passwd"
    target.write_text("root")
    link(str(target), str(tmp_path / "main.log"))
    with pytest.raises(ServerProcessError, match=r"main\.log cannot be written"):
        spawn(Launch(("/bin/echo", "owned"), {}), {"PATH": "/bin"}, None, tmp_path / "main.log")
    assert target.read_text() == "root"


def test_no_lock_is_made_at_the_end_of_a_link(tmp_path):
    (tmp_path / "main.lock").symlink_to(tmp_path / "made")
    with pytest.raises(OSError), exclusive(tmp_path / "main.lock"):
        pass
    assert not (tmp_path / "made").exists()


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    target = tmp_path / "passwd"
    target.write_text("root")
    (tmp_path / "main.json").symlink_to(target)
    write_text(tmp_path / "main.json", "{}", 0o600)
    assert target.read_text() == "root" and not (tmp_path / "main.json").is_symlink()
    assert stat.S_IMODE((tmp_path / "main.json").stat().st_mode) == 0o600


def test_no_moment_at_which_others_could_read_a_secret_file(tmp_path):
    """Looks at every name that comes up while a secret is written, as fast as it can."""
    seen, done = set(), threading.Event()

    def watch():
        while not done.is_set():
            for entry in os.scandir(tmp_path):
                try:
                    seen.add(stat.S_IMODE(entry.stat().st_mode))
                except OSError:
                    continue

    before = os.umask(0)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(100):
            write_text(tmp_path / "secrets.yaml", "api-key: %d" % number, 0o400)
    finally:
        os.umask(before)
        done.set()
        watcher.join()
    assert seen <= {0o600, 0o400} and 0o400 in seen


# -- what is cleaned up after a server


@pytest.fixture
def shared(tmp_path):
    """Two folders as /dev/shm and /tmp, and what a server has left there, an hour ago."""
    for name in ("shm", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


def clean(shared, uid=None, procfs=None):
    scene = Scene(set(), os.getuid() if uid is None else uid, time.time() + 5, False, set())
    keeper = Leftovers(procfs or ProcFs(), str(shared / "shm"), str(shared / "tmp"))
    return {item.file.name: item for item in keeper.clean(scene, act=True)}


NAME = "sglang_loads_x.shm"


def test_a_link_among_the_leftovers_is_neither_followed_nor_touched(shared):
    target = shared / "passwd"
    target.write_text("root")
    (shared / "shm" / NAME).symlink_to(target)
    (shared / "shm" / "sglang_host_pool_d").mkdir()
    pipe(shared / "shm" / "sgl_shm_p_1_0a")
    assert clean(shared) == {}
    assert target.exists() and (shared / "shm" / NAME).is_symlink()


def test_a_second_name_of_somebodys_file_stays(shared):
    target = shared / "database"
    target.write_text("rows")
    os.link(str(target), str(shared / "shm" / NAME))
    found = clean(shared)
    assert found[NAME].action == "kept" and "another name" in found[NAME].reason


@AS_ROOT
def test_files_of_others_stay_whatever_they_are_called(shared):
    path = shared / "shm" / NAME
    path.write_text("x")
    os.chown(str(path), EVE, EVE)
    assert clean(shared) == {} and path.exists()


def test_a_folder_that_has_become_a_link_in_between(shared, monkeypatch):
    victim = shared / "victim"
    victim.mkdir()
    (victim / NAME).write_text("theirs")
    (shared / "shm" / NAME).write_text("ours")
    looks = []

    def swap(self):
        looks.append(self)
        if len(looks) == 2:  # the look right before the removal
            (shared / "shm").rename(shared / "away")
            (shared / "shm").symlink_to(victim)
        return original(self)

    original = FileUsers.anywhere
    monkeypatch.setattr(FileUsers, "anywhere", swap)
    found = clean(shared)
    assert found[NAME].action == "kept" and "another file has taken its name" in found[NAME].reason
    assert (victim / NAME).read_text() == "theirs"


def test_a_name_that_moves_the_terminal_is_shown(shared):
    name = "sglang_loads_\x1b[2J\u202e.shm"
    (shared / "shm" / name).write_text("x")
    (item,) = clean(shared).values()
    assert item.to_dict()["path"].endswith("sglang_loads_\\x1b[2J\\u202e.shm")


def test_where_processes_of_others_do_not_show_nothing_is_removed(shared):
    class Hiding(ProcFs):
        def hidden(self):
            return "/proc is mounted with hidepid=2"

    (shared / "shm" / NAME).write_text("x")
    found = clean(shared, procfs=Hiding())
    assert found[NAME].action == "kept" and "hidepid=2" in found[NAME].reason
    assert (shared / "shm" / NAME).exists()


def test_a_socket_in_tmp_that_nobody_has_is_no_reason_to_follow_its_name(shared):
    path = shared / "tmp" / "tmpabcdef12"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert clean(shared) == {} and path.exists()
