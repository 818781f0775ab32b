# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which leftovers are removed, on real files; who uses them is tested in test_shared_files."""

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.leftovers import Leftovers, Scene
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.shared_files import FileUsers, Look

OLD, STOPPED = 1000.0, 2000.0
ME = os.geteuid()


@pytest.fixture
def folders(tmp_path):
    for name in ("shm", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path / "shm", tmp_path / "tmp"


@pytest.fixture
def keeper(folders, monkeypatch):
    """The folders' keeper on a host whose other processes use nothing."""
    monkeypatch.setattr(FileUsers, "anywhere", lambda self: Look())
    return Leftovers(ProcFs(), *map(str, folders))


def make(folder, name, modified=OLD):
    path = folder / name
    path.write_bytes(bytes(8192))
    os.utime(path, (modified, modified))
    return path


def scene(**changes):
    values = {"used": set(), "uid": ME, "stopped_at": STOPPED, "others": False, "live_pids": {4711}}
    return Scene(**{**values, **changes})


def clean(keeper, act=True, enabled=True, **changes):
    found = keeper.clean(scene(**changes), act, enabled)
    return {item.file.name: (item.action, item.reason) for item in found}


@pytest.mark.parametrize(
    ("name", "changes", "action", "words"),
    [
        ("sgl_shm_a", {}, "removed", "only SGLang"),
        ("sglang_loads_x_y.shm", {}, "removed", "only SGLang"),
        ("sglang_host_pool_1", {}, "removed", "only SGLang"),
        ("multi_tokenizer_args_12", {}, "removed", "process 12 of its name is gone"),
        ("multi_tokenizer_args_12", {"others": True}, "removed", "process 12"),
        ("sgl_shm_mm_12_0a1b2c3d", {}, "removed", "process 12 of its name is gone"),
        ("sgl_shm_mm_12_0a1b2c3d", {"others": True}, "removed", "process 12 of its name is gone"),
        ("sgl_shm_mm_4711_0a1b2c3d", {}, "kept", "live process"),
        ("sgl_shm_mm_12_0a1b2c3d", {"others": True, "stopped_at": OLD + 1}, "removed", "process 12"),
        ("multi_tokenizer_args_4711", {}, "kept", "live process"),
        ("sgl_shm_a", {"uid": ME + 1}, None, ""),
        ("sgl_shm_a", {"uid": None}, "kept", "user is not known"),
        ("sgl_shm_a", {"stopped_at": 500.0}, "kept", "newer than this stop"),
        ("sglang_loads_x_y.shm", {"others": True, "stopped_at": OLD + 59}, "kept", "another server of this user"),
        ("sglang_loads_x_y.shm", {"others": True, "stopped_at": OLD + 61}, "removed", "only SGLang"),
        ("sglang_loads_x_y.shm", {"stopped_at": OLD + 1}, "removed", "only SGLang"),
        ("nccl-abc", {"others": True}, "kept", "nothing shows whose it was"),
        ("nccl-abc", {}, "kept", "nothing shows whose it was"),
        ("cuda.shm.0.1f.1", {}, "kept", "nothing shows whose it was"),
        ("psm_abc", {}, None, ""),
        ("sem.loky-1", {}, None, ""),
        ("xsgl_shm_a", {}, None, ""),
        ("multi_tokenizer_args_x", {}, None, ""),
        ("sglang_loads_x", {}, None, ""),
    ],
)
def test_evidence(folders, keeper, name, changes, action, words):
    path = make(folders[0], name)
    found = clean(keeper, **changes)
    assert (found.get(name, (None, ""))[0], path.exists()) == (action, action != "removed")
    assert words in found.get(name, (None, ""))[1]


@pytest.mark.parametrize("name", ["psm_abc", "sem.loky-1", "nccl-abc", "cuda.shm.0.1f.1", "sgl_shm_a"])
def test_what_was_seen_in_use_needs_no_name(folders, keeper, name):
    path = make(folders[0], name, modified=STOPPED + 10)
    with open(path, "rb"):
        used = keeper.used_by([os.getpid()])
    assert clean(keeper, used=used, uid=None)[name] == (
        "removed",
        "this server used it, and no live process does",
    )


def test_another_file_of_that_name_was_not_seen_in_use(folders, keeper):
    path = make(folders[0], "psm_abc")
    with open(path, "rb"):
        used = keeper.used_by([os.getpid()])
        path.rename(folders[0] / "elsewhere")
        make(folders[0], "psm_abc")
    assert clean(keeper, used=used) == {}


def test_a_socket_in_tmp_goes_only_where_it_was_seen(folders, keeper):
    path = make(folders[1], "tmpabcd1234")
    make(folders[1], "tmpx.txt")
    assert clean(keeper) == {}
    with open(path, "rb"):
        used = keeper.used_by([os.getpid()])
    assert clean(keeper, used=used)["tmpabcd1234"][0] == "removed"
    assert (folders[1] / "tmpx.txt").exists()


def test_check_mode_and_the_option_keep_everything(folders, keeper):
    path = make(folders[0], "sgl_shm_a")
    assert clean(keeper, act=False)["sgl_shm_a"][0] == "would_remove"
    action, reason = clean(keeper, enabled=False)["sgl_shm_a"]
    assert action == "kept" and reason.startswith("remove_leftovers is false") and path.exists()


def test_nothing_goes_where_not_everybody_can_be_looked_at(folders, keeper, monkeypatch):
    path = make(folders[0], "sgl_shm_a")
    monkeypatch.setattr(FileUsers, "anywhere", lambda self: Look(blind="3 processes may not be looked at"))
    action, reason = clean(keeper)["sgl_shm_a"]
    assert action == "kept" and "3 processes may not be looked at" in reason and path.exists()


def test_one_who_opens_it_in_the_last_moment_keeps_it(folders, keeper, monkeypatch):
    path = make(folders[0], "sgl_shm_a")
    looks = [Look(), Look({str(path): [os.getpid()]})]
    monkeypatch.setattr(FileUsers, "anywhere", lambda self: looks.pop(0))
    action, reason = clean(keeper)["sgl_shm_a"]
    assert action == "kept" and "PID %d" % os.getpid() in reason and path.exists()


def test_a_rehearsal_says_what_goes_with_those_that_would_end(folders, keeper, monkeypatch):
    path = make(folders[0], "sgl_shm_a")
    with open(path, "rb"):
        used = keeper.used_by([os.getpid()])
    monkeypatch.setattr(FileUsers, "anywhere", lambda self: Look({str(path): [os.getpid(), 1]}))
    action, reason = clean(keeper, act=False, used=used, ending={os.getpid()})["sgl_shm_a"]
    assert action == "kept" and reason.startswith("PID 1 ")
    monkeypatch.setattr(FileUsers, "anywhere", lambda self: Look({str(path): [os.getpid()]}))
    assert clean(keeper, act=False, used=used, ending={os.getpid()})["sgl_shm_a"][0] == "would_remove"


def test_sizes_are_of_what_a_file_takes(folders, keeper):
    make(folders[0], "sgl_shm_a")
    (item,) = keeper.clean(scene(), act=False)
    assert item.to_dict()["size_mib"] == 0.01 and item.to_dict()["path"].endswith("/sgl_shm_a")
