# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files that a killed server left behind."""

from __future__ import annotations

import os

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.jit_locks import (
    jit_folders,
    stale_locks,
    waited_for,
)


def put(path, at):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))
    return str(path)


def test_where_compilers_keep_their_files():
    assert jit_folders({}, "/home/x")[:2] == ["/home/x/.cache/torch_extensions", "/home/x/.aiter/jit/build"]
    found = jit_folders({"TORCH_EXTENSIONS_DIR": "/t", "AITER_JIT_DIR": "/a", "XDG_CACHE_HOME": "/c"}, "/home/x")
    assert found[:2] == ["/t", "/a/build"]
    assert jit_folders({"XDG_CACHE_HOME": "/c"}, "/home/x")[0] == "/c/torch_extensions"


def test_locks_that_are_older_than_the_server(tmp_path):
    old = [
        put(tmp_path / "torch" / "py312_cu130" / "kernel" / "lock", 100),
        put(tmp_path / "torch" / "kernel" / "lock", 100),
        put(tmp_path / "aiter" / "lock_module_x", 100),
    ]
    put(tmp_path / "torch" / "py312_cu130" / "other" / "lock", 300)  # its own
    put(tmp_path / "torch" / "py312_cu130" / "kernel" / "build.lock", 100)  # one whose file always stays
    put(tmp_path / "torch" / "py312_cu130" / "kernel" / "kernel.so", 100)
    (tmp_path / "torch" / "locked" / "lock").mkdir(parents=True)
    folders = [str(tmp_path / "torch"), str(tmp_path / "aiter"), str(tmp_path / "missing")]
    assert stale_locks(folders, 200) == sorted(old)


def test_the_lock_that_the_log_waits_for():
    line = "[2026-01-02 03:04:05] [aiter] waiting for baton release at /root/.aiter/build/lock_module_x"
    assert waited_for(["a", line, line]) == ["/root/.aiter/build/lock_module_x"]
    # What was waited for long ago is there by now.
    assert waited_for([line, *["later"] * 20]) == []
