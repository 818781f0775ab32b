# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import host_checks
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths


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
