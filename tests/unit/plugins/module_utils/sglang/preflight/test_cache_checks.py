# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight import cache_checks

NOW = 2_000_000_000.0


@pytest.fixture
def proc(tmp_path):
    """A /proc to fill: (its path, a function that adds a process with open files)."""
    root = tmp_path / "proc"
    root.mkdir()

    def add(pid, *files):
        folder = root / str(pid) / "fd"
        folder.mkdir(parents=True)
        for number, path in enumerate(files):
            (folder / str(number)).symlink_to(path)

    return root, add


def make(path, text="", modified=NOW - 1000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (modified, modified))
    return path


def messages(tmp_path, proc_root, ours=(), alive=(), models=(), **environment):
    checks = cache_checks.check_caches(
        environment, str(tmp_path / "home"), models, NOW, str(proc_root), lambda p: p in ours, lambda p: p in alive
    )
    assert all(check.status == WARNING for check in checks if check.status != "ok")
    return [check.message for check in checks if check.status == WARNING]


def test_folders_follow_the_environment():
    default = cache_checks.cache_folders({}, "/home/me")
    assert "/home/me/.cache/huggingface" in default and "/home/me/.triton/cache" in default
    named = cache_checks.cache_folders(
        {"HF_HOME": "/hf", "TRITON_CACHE_DIR": "/t", "TORCH_EXTENSIONS_DIR": "/x", "XDG_CACHE_HOME": "/c"}, "/home/me"
    )
    assert named == ["/t", "/x", "/hf", "/c"]


def test_clean_caches_are_fine(tmp_path, proc):
    make(tmp_path / "home" / ".cache" / "torch_extensions" / "py" / "kernel" / "kernel.so")
    make(tmp_path / "home" / ".cache" / "huggingface" / "x.lock")  # most locks are files that stay
    assert messages(tmp_path, proc[0]) == []


def test_a_lock_of_the_jit_compiler_that_nobody_has_open(tmp_path, proc):
    root, add = proc
    lock = make(tmp_path / "home" / ".cache" / "torch_extensions" / "py312_cu130" / "kernel" / "lock")
    (message,) = messages(tmp_path, root)
    assert f"rm {lock}" in message
    add(4711, lock)
    assert messages(tmp_path, root) == []


def test_a_lock_that_names_a_dead_process(tmp_path, proc):
    lock = make(tmp_path / "home" / ".cache" / "a" / "b.lock", "4711\nhost\n")
    assert messages(tmp_path, proc[0], alive=[4711]) == []
    (message,) = messages(tmp_path, proc[0])
    assert str(lock) in message


def test_a_lock_that_somebody_else_holds(tmp_path, proc):
    root, _add = proc
    lock = make(tmp_path / "home" / ".cache" / "flashinfer" / "k.lock")
    inode = lock.stat().st_ino
    (root / "locks").write_text(
        f"1: FLOCK  ADVISORY  WRITE 4711 08:01:{inode} 0 EOF\n"
        f"1: -> FLOCK  ADVISORY  WRITE 4712 08:01:{inode} 0 EOF\n"
        "2: POSIX  ADVISORY  READ -1 08:01:99 0 EOF\nnonsense\n"
    )
    (message,) = messages(tmp_path, root)
    assert str(lock) in message and "PID 4711" in message
    assert messages(tmp_path, root, ours=[4711]) == []


def test_many_locks_are_counted(tmp_path, proc):
    for number in range(5):
        make(tmp_path / "home" / ".cache" / "a" / f"{number}.lock", "4711")
    (message,) = messages(tmp_path, proc[0])
    assert "and 2 more" in message


def test_files_from_the_future(tmp_path, proc):
    weights = make(tmp_path / "model" / "model.safetensors", modified=NOW + 3600)
    make(tmp_path / "model" / "config.json", modified=NOW + 60)  # clocks differ a little
    (message,) = messages(tmp_path, proc[0], models=[str(tmp_path / "model"), "/no/such/folder"])
    assert str(weights) in message and "clock" in message and "config.json" not in message
    cached = make(tmp_path / "home" / ".triton" / "cache" / "x" / "kernel.so", modified=NOW + 3600)
    (message,) = messages(tmp_path, proc[0])
    assert str(cached) in message


def test_the_walk_ends(tmp_path, proc, monkeypatch):
    monkeypatch.setattr(cache_checks, "_MOST_ENTRIES", 3)
    for number in range(5):
        make(tmp_path / "home" / ".cache" / f"{number}")
    checks = cache_checks.check_caches(
        {}, str(tmp_path / "home"), (), NOW, str(proc[0]), lambda _pid: False, lambda _pid: True
    )
    assert any(check.status == "skipped" for check in checks)


def test_the_walk_ends_on_a_slow_file_server_too(tmp_path):
    for number in range(5):
        make(tmp_path / f"{number}.lock")
    ticks = iter(range(100))
    found = cache_checks.look([str(tmp_path)], NOW, lambda: float(next(ticks)))
    assert not found.complete and len(found.locks) == 3


def test_links_are_not_followed(tmp_path, proc):
    folder = tmp_path / "home" / ".cache"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to(folder)
    make(tmp_path / "elsewhere" / "a.lock", "4711")
    (folder / "away").symlink_to(tmp_path / "elsewhere")
    assert messages(tmp_path, proc[0]) == []


def test_a_weight_cache_daemon_is_named(tmp_path, proc):
    root, _add = proc
    (root / "net").mkdir()
    header = "Num       RefCount Protocol Flags    Type St Inode Path\n"
    line = "0000000000000000: 00000002 00000000 {flags} 0001 01 4711 /tmp/sglang_weight_cache_gpu{gpu}.sock\n"
    (root / "net" / "unix").write_text(
        header
        + line.format(flags="00010000", gpu=0)
        + line.format(flags="00000000", gpu=1)
        + "0000000000000000: 00000002 00000000 00010000 0001 01 4712 /run/other.sock\n"
        + "0000000000000000: 00000002 00000000 00010000 0001 01 4713\n"
    )
    (message,) = messages(tmp_path, root)
    assert "gpu0.sock" in message and "gpu1.sock" not in message and "GPU memory" in message
