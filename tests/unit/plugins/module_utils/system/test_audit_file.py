# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import audit_file
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_file import LineFile, Refused
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "inferops" / "audit.jsonl"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_and_the_file_are_made_for_their_owner_alone(path):
    before = os.umask(0)
    try:
        LineFile(str(path)).append(b"one\n")
    finally:
        os.umask(before)
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)
    LineFile(str(path)).append(b"two\n", durable=True)
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_torn_line_does_not_spoil_the_next_one(path):
    LineFile(str(path)).append(b'{"whole": 1}\n')
    with path.open("ab") as stream:
        stream.write(b'{"torn": ')
    LineFile(str(path)).append(b'{"next": 2}\n')
    assert path.read_bytes().splitlines() == [b'{"whole": 1}', b'{"torn": ', b'{"next": 2}']


# -- what is refused


def a_link(path):
    path.symlink_to("elsewhere")


def a_pipe(path):
    os.mkfifo(path)


def a_folder(path):
    path.mkdir()


def writable_for_all(path):
    path.touch()
    path.chmod(0o666)


def writable_for_the_group(path):
    path.touch()
    path.chmod(0o620)


def of_two_names(path):
    path.touch()
    os.link(path, path.with_name("second"))


def somebody_elses(path):
    path.touch()
    os.chown(path, 12345, 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (a_link, "not a regular file"),
        (a_pipe, "not a regular file"),
        (a_folder, "not a regular file"),
        (writable_for_all, "others may write .* 0666.*chmod go-w"),
        (writable_for_the_group, "others may write .* 0620"),
        (of_two_names, "second name"),
        pytest.param(somebody_elses, "belongs to the user 12345: chown", marks=ROOT),
    ],
)
def test_a_file_that_others_could_change_is_refused(path, make, words):
    path.parent.mkdir(mode=0o700)
    make(path)
    with pytest.raises(Refused, match=words):
        LineFile(str(path)).append(b"one\n")
    assert not path.with_name("elsewhere").exists()
    assert not path.is_file() or path.read_bytes() == b""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder.symlink_to(folder.parent), "is not a folder"),
        (lambda folder: folder.touch(), "is not a folder"),
        (lambda folder: (folder.mkdir(), folder.chmod(0o777)), "others may write"),
        pytest.param(lambda folder: (folder.mkdir(), os.chown(folder, 12345, 0)), "belongs to the user", marks=ROOT),
    ],
)
def test_a_folder_that_others_could_change_is_refused(path, make, words):
    make(path.parent)
    with pytest.raises(Refused, match=words):
        LineFile(str(path)).append(b"one\n")
    assert not (path.parent.parent / "audit.jsonl").exists()


def test_a_file_that_others_may_read_is_their_administrators_choice(path):
    path.parent.mkdir(mode=0o750)
    path.touch()
    path.chmod(0o640)
    LineFile(str(path)).append(b"one\n")
    assert (path.read_bytes(), mode(path)) == (b"one\n", 0o640)


def test_no_more_than_the_last_folder_is_made(path):
    with pytest.raises(Refused, match="inferops does not exist: make it"):
        LineFile(str(path.parent / "deeper" / "audit.jsonl")).append(b"one\n")


def test_what_fits_half_is_taken_back(path, monkeypatch):
    LineFile(str(path)).append(b"one\n")
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    with pytest.raises(Refused, match="no space left"):
        LineFile(str(path)).append(b"two two\n")
    assert path.read_bytes() == b"one\n"


# -- bounds


def test_it_never_grows_beyond_its_bounds(path):
    file = LineFile(str(path), most_bytes=100, older=2)
    lines = [b"%09d\n" % number for number in range(100)]
    for line in lines:
        file.append(line)
    assert sorted(os.listdir(path.parent)) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    kept = [path.with_name(name).read_bytes() for name in ("audit.jsonl.2", "audit.jsonl.1", "audit.jsonl")]
    assert all(len(text) < 100 for text in kept)
    # The newest ones, whole and in order.
    assert b"".join(kept).splitlines(keepends=True) == lines[-b"".join(kept).count(b"\n") :]


def test_a_line_that_is_larger_than_the_file_may_be_is_kept_all_the_same(path):
    file = LineFile(str(path), most_bytes=10)
    for line in (b"a" * 50 + b"\n", b"b" * 50 + b"\n"):
        file.append(line)
    assert path.read_bytes() == b"b" * 50 + b"\n"


def test_a_rotation_that_was_killed_half_way_loses_nothing(path):
    path.parent.mkdir(mode=0o700)
    for name in ("audit.jsonl.1", "audit.jsonl.3"):  # .2 had just become .3
        path.with_name(name).write_bytes(name.encode() + b"\n")
    path.write_bytes(b"x" * 99 + b"\n")
    LineFile(str(path), most_bytes=100).append(b"new\n")
    found = {name: path.with_name(name).read_bytes()[:13] for name in os.listdir(path.parent)}
    assert found == {
        "audit.jsonl": b"new\n",
        "audit.jsonl.1": b"x" * 13,
        "audit.jsonl.2": b"audit.jsonl.1",
        "audit.jsonl.4": b"audit.jsonl.3",
    }


# -- several at once


def test_a_lock_that_is_not_given_back_is_no_hang(path):
    LineFile(str(path)).append(b"one\n")
    clock = FakeClock()
    file = LineFile(str(path), patience=2.0, clock=clock, sleep=clock.sleep)
    holder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_SH)  # which a lock of its own for each writer would not notice
        began = clock()
        for _attempt in range(3):
            with pytest.raises(Refused, match="another process has locked"):
                file.append(b"two\n")
        # All of them together wait no longer than one may.
        assert clock() - began == pytest.approx(2.0, abs=0.01)
    finally:
        os.close(holder)
    file.append(b"three\n")
    assert path.read_bytes() == b"one\nthree\n"


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import audit_file
file = audit_file.LineFile(sys.argv[2], most_bytes=4000, older=50, patience=30.0)
for number in range(100):
    file.append(b"%s %03d %s\\n" % (sys.argv[3].encode(), number, b"x" * 60))
"""


def test_lines_of_several_processes_neither_mix_nor_get_lost(path):
    folder = os.path.dirname(audit_file.__file__)
    command = [sys.executable, "-S", "-c", WRITER, folder, str(path)]
    writers = [subprocess.Popen([*command, name]) for name in ("a", "b", "c")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    lines = b"".join(file.read_bytes() for file in path.parent.iterdir()).splitlines()
    expected = [b"%s %03d %s" % (name, number, b"x" * 60) for name in (b"a", b"b", b"c") for number in range(100)]
    assert sorted(lines) == expected
    assert len(list(path.parent.iterdir())) > 3
