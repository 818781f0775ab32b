# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses shared files, and their removal, on real files and processes."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import socket

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import shared_files
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.shared_files import (
    FileUsers,
    list_files,
    remove,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc

PROCFS = ProcFs()
ALL = re.compile(".*")
ME = os.getpid()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def make(folder, name):
    path = folder / name
    path.write_bytes(bytes(4096))
    (found,) = list_files(str(folder), re.compile(re.escape(name)))
    return found


@contextlib.contextmanager
def mapped(path):
    """This process has the file mapped, and closed."""
    descriptor = os.open(path, os.O_RDWR)
    view = mmap.mmap(descriptor, 4096)
    os.close(descriptor)
    try:
        yield
    finally:
        view.close()


def test_only_files_and_sockets_are_listed(folder):
    make(folder, "a")
    (folder / "link").symlink_to(folder / "a")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "sock"))
        assert [(item.name, item.is_socket) for item in list_files(str(folder), ALL)] == [("a", False), ("sock", True)]
    assert [item.name for item in list_files(str(folder), re.compile("so"))] == []
    assert list_files(str(folder / "none"), ALL) == []


def test_open_and_mapped_files_have_users(folder):
    file = make(folder, "sgl_shm_x")
    users = FileUsers([file], PROCFS)
    assert users.among([ME]) == {}
    with open(file.path, "rb"):
        assert users.among([ME]) == {file.path: [ME]}
    with mapped(file.path):
        assert users.among([ME]) == {file.path: [ME]}
        assert users.anywhere().users[file.path] == [ME]
    assert users.among([ME, 4194300]) == {}


def test_another_file_of_the_same_name_is_another_file(folder, tmp_path):
    file = make(folder, "sgl_shm_x")
    other = make(tmp_path, "sgl_shm_x")
    users = FileUsers([file], PROCFS)
    with open(other.path, "rb"), mapped(other.path):
        assert users.among([ME]) == {}


def test_where_numbers_cannot_be_compared_the_name_must_do(folder, tmp_path, monkeypatch):
    file, other = make(folder, "sgl_shm_x"), make(tmp_path, "sgl_shm_x")
    monkeypatch.setattr(shared_files, "_mount_of", lambda *_words: None)
    with mapped(other.path):
        assert FileUsers([file], PROCFS).among([ME]) == {file.path: [ME]}


def test_a_removed_file_that_is_still_mapped_is_no_file_any_more(folder):
    file = make(folder, "sgl_shm_x")
    with mapped(file.path):
        os.unlink(file.path)
        again = make(folder, "sgl_shm_x")
        if again.inode != file.inode:
            assert FileUsers([again], PROCFS).among([ME]) == {}


def test_a_bound_socket_has_a_user(folder):
    path = folder / "tmpabcd1234"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        (file,) = list_files(str(folder), ALL)
        assert FileUsers([file], PROCFS).among([ME]) == {file.path: [ME]}
        assert FileUsers([file], PROCFS).anywhere().users == {file.path: [ME]}
    assert FileUsers([file], PROCFS).anywhere().users == {}


def test_a_process_that_may_not_be_looked_at_is_said(folder, monkeypatch):
    file = make(folder, "sgl_shm_x")
    users = FileUsers([file], PROCFS)
    used_by = users._used_by
    monkeypatch.setattr(users, "_used_by", lambda pid: None if pid == ME else used_by(pid))
    look = users.anywhere()
    assert "PID %d" % ME in look.blind and "run as root" in look.blind


def test_a_container_with_the_hosts_memory_files_sees_too_little(folder, monkeypatch):
    file = make(folder, "sgl_shm_x")
    monkeypatch.setattr(ProcFs, "in_pid_namespace", lambda self: True)
    monkeypatch.setattr(ProcFs, "namespace", lambda self, pid, kind: "ipc:[4026531839]" if kind == "ipc" else "net")
    users = FileUsers([file], PROCFS)
    assert "does not see its processes" in users._hidden()
    monkeypatch.setattr(ProcFs, "namespace", lambda self, pid, kind: "ipc:[4026532000]" if kind == "ipc" else "net")
    assert users._hidden() == ""


@pytest.mark.parametrize(
    ("mount", "first", "words"),
    [
        ("/dev/shm rw - tmpfs shm rw", "sh", ""),  # an engine's own for this container
        ("/dev/shm rw master:7 shared:9 - tmpfs tmpfs rw", "sh", "/dev/shm may be shared with others"),
        ("/dev/shm rw - tmpfs tmpfs rw", "tini", "/dev/shm may be shared with others"),
        ("/dev/shm rw - tmpfs tmpfs rw", "systemd", ""),  # a guest
        ("/dev/shm rw - tmpfs tmpfs rw", "init", ""),
        ("/ rw - overlay overlay rw", "sh", ""),
    ],
)
def test_a_container_whose_memory_files_may_be_others_as_well_sees_too_little(
    tmp_path, monkeypatch, mount, first, words
):
    monkeypatch.setattr(ProcFs, "in_pid_namespace", lambda self: True)
    monkeypatch.setattr(ProcFs, "namespace", lambda self, pid, kind: "ipc:[4026532000]" if kind == "ipc" else "net")
    proc = FakeProc(tmp_path)
    proc.add(1, ppid=0, comm=first)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text("22 1 0:20 / / rw - overlay overlay rw\n223 22 0:76 / %s\n" % mount)
    file = shared_files.SharedFile("/dev/shm/sgl_shm_x", 1, 2, 0, 0, 0.0)
    problem = FileUsers([file], proc.procfs)._hidden()
    assert words in problem and bool(words) == bool(problem)


def test_exactly_the_file_that_was_seen_is_removed(folder):
    file = make(folder, "a")
    os.rename(file.path, folder / "b")
    (folder / "a").write_bytes(b"x")
    assert remove(file) == "another file has taken its name" and (folder / "a").exists()
    (folder / "a").unlink()
    assert remove(file) == "it is gone already"
    (folder / "a").symlink_to(folder / "b")
    assert remove(file) == "another file has taken its name" and (folder / "b").exists()
    (folder / "a").unlink()
    os.rename(folder / "b", file.path)
    assert remove(file) == "" and not os.path.exists(file.path)
