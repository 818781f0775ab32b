# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight import host_checks


@pytest.fixture
def paths(tmp_path):
    return InstancePaths(
        "main", str(tmp_path / "state"), etc_dir=str(tmp_path / "etc"), unit_dir=str(tmp_path / "units")
    )


def statuses(checks):
    return [check.status for check in checks]


@pytest.mark.parametrize(("free", "status"), [(None, "skipped"), (64, "warning"), (1023, "warning"), (1024, "ok")])
def test_shared_memory(free, status):
    assert statuses(host_checks.check_shared_memory(free)) == [status]


def test_shared_memory_that_is_not_there(tmp_path):
    assert host_checks.free_shared_memory(str(tmp_path / "none")) is None
    assert host_checks.free_shared_memory(str(tmp_path)) > 0


def test_account(tmp_path):
    assert host_checks.check_account("", "") == []
    assert host_checks.check_account("root", str(tmp_path)) == []
    assert statuses(host_checks.check_account("no-such-user", str(tmp_path / "none"))) == ["failed", "failed"]
    assert statuses(host_checks.check_account("", ".")) == ["failed"]


def test_a_host_that_can_take_a_release(paths):
    assert statuses(host_checks.check_folders(paths, "systemd", True, False)) == ["ok"]
    assert not os.path.exists(paths.state_dir)


def test_a_folder_that_cannot_be_written_to_is_named(paths, monkeypatch, tmp_path):
    (tmp_path / "units").mkdir()
    monkeypatch.setattr(host_checks.os, "access", lambda path, _mode: str(path) != str(tmp_path / "units"))
    (check,) = host_checks.check_folders(paths, "systemd", False, False)
    assert check.status == "failed" and str(tmp_path / "units") in check.message
    assert statuses(host_checks.check_folders(paths, "process", False, False)) == ["ok"]


def test_a_unit_of_somebody_else(paths):
    paths.unit_file.parent.mkdir()
    paths.unit_file.write_text("[Service]\n")
    (check,) = host_checks.check_folders(paths, "systemd", False, False)
    assert check.status == "failed" and str(paths.unit_file) in check.message
    assert statuses(host_checks.check_folders(paths, "systemd", False, True)) == ["ok"]


def test_a_masked_unit(paths):
    paths.unit_file.parent.mkdir()
    paths.unit_file.symlink_to("/dev/null")
    assert "failed" in statuses(host_checks.check_folders(paths, "systemd", False, True))


@pytest.mark.parametrize(
    ("free", "status", "part"),
    [
        ({}, "ok", ""),
        ({"/state": None}, "ok", ""),
        ({"/state": 63}, "failed", "/state: 63 MiB"),
        ({"/state": 64}, "warning", "/state: only 64 MiB"),
        ({"/cache": 10}, "warning", "/cache: only 10 MiB"),
        ({"/state": 10, "/cache": 10}, "failed", "/state and /cache: 10 MiB"),
        ({"/state": 2048, "/cache": 2047}, "warning", "/cache: only 2047 MiB"),
    ],
)
def test_disk_space(free, status, part):
    (check,) = host_checks.check_disk_space(["/state"], ["/cache", "/state"], lambda path: free.get(path, 9999))
    assert check.status == status and part in check.message


def test_free_space_is_that_of_the_nearest_folder(tmp_path):
    assert host_checks.free_space(str(tmp_path / "a" / "b")) == pytest.approx(
        host_checks.free_space(str(tmp_path)), abs=64
    )


def test_homes():
    assert host_checks.home_of("root") == host_checks.home_of("0") == "/root"
    assert host_checks.home_of("no-such-user") == "/root"
    assert host_checks.home_of("").startswith("/")
