# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in folders that others write to: pipes, devices, links and giants."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import regular_file
from ansible_collections.inferops.sglang.plugins.module_utils.system.regular_file import (
    open_own_log,
    open_regular,
    read_bytes,
    read_text,
)


def failure(call, *arguments):
    with pytest.raises(OSError) as caught:
        call(*arguments)
    return caught.value


def test_a_file_and_a_link_to_one(tmp_path):
    file, link = tmp_path / "config.json", tmp_path / "link"
    file.write_text("{}")
    link.symlink_to(file)
    assert read_text(file) == read_text(str(link)) == "{}"
    assert read_bytes("/proc/self/stat")


def test_a_pipe_does_not_hang_anybody(tmp_path):
    pipe = tmp_path / "config.json"
    os.mkfifo(str(pipe))
    assert "not a regular file" in failure(read_bytes, pipe).strerror
    assert failure(open_own_log, pipe, 0o640).errno in (errno.ENXIO, errno.EINVAL)


def test_a_pipe_that_takes_the_files_place_in_between_does_not_either(tmp_path, monkeypatch):
    pipe = tmp_path / "config.json"
    os.mkfifo(str(pipe))
    looks = []
    monkeypatch.setattr(regular_file, "_check", lambda status, name: looks.append(status.st_mode))
    with open_regular(pipe):
        pass
    assert len(looks) == 2 and stat.S_ISFIFO(looks[1])


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/full"])
def test_a_device_is_not_read(path, tmp_path):
    link = tmp_path / "config.json"
    link.symlink_to(path)
    assert "not a regular file" in failure(read_bytes, link).strerror
    assert failure(open_own_log, path, 0o640).errno == errno.EINVAL


def test_a_folder_and_nothing(tmp_path):
    assert failure(read_bytes, tmp_path).errno == errno.EISDIR
    assert failure(read_bytes, tmp_path / "missing").errno == errno.ENOENT
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert failure(read_bytes, loop).errno == errno.ELOOP


def test_a_giant_is_not_taken_into_memory(tmp_path):
    giant = tmp_path / "config.json"
    giant.touch()
    os.truncate(str(giant), 1 << 40)
    assert "larger than 4 MiB" in failure(read_bytes, giant, 4 << 20).strerror
    os.truncate(str(giant), 4 << 20)
    assert len(read_bytes(giant, 4 << 20)) == 4 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_link_of_somebody_else_leads_only_to_his_own_files(tmp_path):
    secret, own, link = tmp_path / "shadow", tmp_path / "own", tmp_path / "config.json"
    secret.write_text("root:x")
    own.write_text("{}")
    os.chown(str(own), 1234, 1234)
    link.symlink_to(secret)
    assert read_text(link) == "root:x"  # root made it
    os.lchown(str(link), 1234, 1234)
    assert "another user" in failure(read_bytes, link).strerror
    link.unlink()
    link.symlink_to(own)
    os.lchown(str(link), 1234, 1234)
    assert read_text(link) == "{}"


def test_a_log_goes_on_where_it_is(tmp_path):
    log = tmp_path / "main.log"
    for word in (b"one ", b"two"):
        descriptor = open_own_log(log, 0o640)
        assert os.get_blocking(descriptor)
        os.write(descriptor, word)
        os.close(descriptor)
    assert log.read_bytes() == b"one two"
    assert stat.S_IMODE(log.stat().st_mode) == 0o640


@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_nothing_is_written_through_a_link(tmp_path, plant):
    target, log = tmp_path / "passwd", tmp_path / "main.log"
    target.write_text("root")
    target.chmod(0o600)
    plant(str(target), str(log))
    assert failure(open_own_log, log, 0o640).errno in (errno.ELOOP, errno.EMLINK)
    assert target.read_text() == "root" and stat.S_IMODE(target.stat().st_mode) == 0o600


def test_no_descriptor_is_left(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(str(pipe))
    before = len(os.listdir("/proc/self/fd"))
    for _attempt in range(5):
        failure(read_bytes, pipe)
        failure(open_own_log, "/dev/null", 0o640)
    assert len(os.listdir("/proc/self/fd")) == before
