# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process has mapped, by the two ways to ask."""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import memory_maps

OWN = "/proc/self/maps"


def refused(number):
    def call(*_args):
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture
def shared(tmp_path):
    """A file that this process has mapped, to be shared with others."""
    path = tmp_path / "shared"
    path.write_bytes(b"x" * mmap.PAGESIZE)
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), mmap.PAGESIZE):
        yield path


def test_the_text_of_a_maps_file(shared):
    assert os.fsencode(shared) in memory_maps.text_of(OWN)


def test_a_file_that_is_gone_is_empty_and_one_that_is_closed_is_not_known(monkeypatch):
    assert memory_maps.text_of("/proc/self/nothing") == b""
    monkeypatch.setattr(os, "open", refused(errno.EACCES))
    assert memory_maps.text_of(OWN) is None


@pytest.mark.parametrize(("number", "text"), [(errno.ESRCH, b""), (errno.EACCES, None)])
def test_a_process_that_ends_or_closes_itself_while_it_is_read(monkeypatch, number, text):
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", refused(number))
        assert memory_maps.text_of(OWN) == text
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_kernels_answer_names_the_same_file(shared):
    mappings = memory_maps.SharedMappings()
    files = mappings.files(OWN)
    if not mappings.supported:
        pytest.skip("this kernel has no PROCMAP_QUERY (Linux 6.11)")
    assert (str(shared), shared.stat().st_ino) in files


def test_who_may_not_be_asked_is_not_known_and_who_is_gone_has_none(monkeypatch):
    mappings = memory_maps.SharedMappings()
    assert mappings.files("/proc/self/nothing") == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused(errno.EACCES))
        assert mappings.files(OWN) is None
    assert mappings.supported


@pytest.mark.parametrize(
    ("number", "files", "supported"),
    [
        (errno.ENOTTY, [], False),
        (errno.EINVAL, [], False),
        (errno.EACCES, None, True),
        (errno.EPERM, None, True),
        (errno.ENOENT, [], True),
        (errno.ESRCH, [], True),
    ],
)
def test_what_a_refused_question_means(monkeypatch, number, files, supported):
    before = len(os.listdir("/proc/self/fd"))
    mappings = memory_maps.SharedMappings()
    with monkeypatch.context() as patch:
        patch.setattr(memory_maps.fcntl, "ioctl", refused(number))
        assert mappings.files(OWN) == files
    assert mappings.supported is supported
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_there_is_no_fcntl_the_text_is_read(monkeypatch):
    monkeypatch.setattr(memory_maps, "fcntl", None)
    assert not memory_maps.SharedMappings().supported
