# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import release_store
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    read_current,
    read_last_good,
)

NOW = datetime(2026, 11, 30, 10, 45, tzinfo=timezone.utc)


@pytest.fixture
def paths(tmp_path):
    return InstancePaths(
        "main", str(tmp_path / "state"), etc_dir=str(tmp_path / "etc"), unit_dir=str(tmp_path / "units")
    )


def wanted(steps=2, manager="systemd", **changes):
    fields = {
        "id": "",
        "created": "",
        "instance": "main",
        "manager": manager,
        "command": ["/usr/bin/python3", "--speculative-num-steps", str(steps)],
    }
    return Release(**dict(fields, **changes))


def deploy(paths, release, minutes=0, proven=False, keep=10):
    plan = release_store.plan_present(release, paths, NOW + timedelta(minutes=minutes), False)
    release_store.apply(plan, paths)
    if proven:
        release_store.apply(release_store.plan_proven(paths, keep), paths)
    return plan


def test_a_new_release_is_written_and_becomes_the_current_one(paths):
    plan = deploy(paths, wanted())
    assert plan.changes and plan.release.id.startswith("20261130T104500Z-")
    assert plan.release.created == "2026-11-30T10:45:00Z"
    assert read_current(paths) == plan.release
    assert os.readlink(paths.current_link) == f"releases/{plan.release.id}"
    path = paths.releases_dir / plan.release.id / "release.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert paths.environment_file.stat().st_mode & 0o777 == 0o600
    assert "ExecStart=/usr/bin/python3 --speculative-num-steps 2" in paths.unit_file.read_text()


def test_the_same_configuration_changes_nothing(paths):
    first = deploy(paths, wanted())
    again = release_store.plan_present(wanted(), paths, NOW + timedelta(hours=1), False)
    assert not again.changes
    assert again.release == first.release


def test_a_file_that_was_changed_by_hand_is_written_again(paths):
    deploy(paths, wanted())
    paths.unit_file.write_text(paths.unit_file.read_text() + "# by hand\n")
    plan = deploy(paths, wanted(), minutes=1)
    assert [item.path for item in plan.files] == [paths.unit_file]
    assert not plan.current and not plan.new
    assert "by hand" not in paths.unit_file.read_text()


def test_a_mode_that_was_opened_is_closed_again(paths):
    deploy(paths, wanted())
    paths.environment_file.chmod(0o644)
    deploy(paths, wanted(), minutes=1)
    assert paths.environment_file.stat().st_mode & 0o777 == 0o600


def test_the_process_manager_needs_no_unit(paths):
    deploy(paths, wanted(manager="process"))
    assert not paths.unit_file.exists() and not paths.environment_file.exists()


def test_secret_arguments_have_a_file_of_their_own(paths):
    yaml = pytest.importorskip("yaml")
    deploy(paths, wanted(manager="process", secret_args={"api-key": 'a"b\\c: #', "admin-api-key": "null"}))
    assert paths.secret_args_file.stat().st_mode & 0o777 == 0o400
    assert yaml.safe_load(paths.secret_args_file.read_text()) == {"api-key": 'a"b\\c: #', "admin-api-key": "null"}


def test_a_key_that_is_needed_no_more_does_not_stay(paths):
    deploy(paths, wanted(secret_args={"api-key": "sk-123456"}), proven=True)
    plan = deploy(paths, wanted())
    assert plan.obsolete == [paths.secret_args_file] and not paths.secret_args_file.exists()
    assert not deploy(paths, wanted()).changes
    # Going back brings it back.
    release_store.apply(release_store.plan_restored(paths, "systemd", False), paths)
    assert "sk-123456" in paths.secret_args_file.read_text()


def test_a_secrets_file_of_somebody_else_stays(paths):
    deploy(paths, wanted())
    paths.secret_args_file.write_text("mine: 1\n")
    assert deploy(paths, wanted(port=31000)).obsolete == []


def test_proven_is_remembered_once(paths):
    plan = deploy(paths, wanted(), proven=True)
    assert read_last_good(paths) == plan.release
    assert not release_store.plan_proven(paths, 10).changes


def test_restored_goes_back(paths):
    good = deploy(paths, wanted(2), proven=True)
    deploy(paths, wanted(7), minutes=1)
    plan = release_store.plan_restored(paths, "systemd", False)
    release_store.apply(plan, paths)
    assert read_current(paths) == good.release
    assert "--speculative-num-steps 2" in paths.unit_file.read_text()
    assert not release_store.plan_restored(paths, "systemd", False).changes


def test_restored_works_when_the_current_release_is_broken(paths):
    good = deploy(paths, wanted(2), proven=True)
    bad = deploy(paths, wanted(7), minutes=1)
    (paths.releases_dir / bad.release.id / "release.json").write_text("{")
    paths.unit_file.unlink()
    release_store.apply(release_store.plan_restored(paths, "systemd", False), paths)
    assert read_current(paths) == good.release
    assert paths.unit_file.exists()


def test_a_broken_current_release_is_not_written_over(paths):
    plan = deploy(paths, wanted())
    path = paths.releases_dir / plan.release.id / "release.json"
    path.write_text("{")
    with pytest.raises(ReleaseError, match=plan.release.id.split("-")[1] + "|current"):
        release_store.plan_present(wanted(7), paths, NOW, False)
    with pytest.raises(ReleaseError):
        release_store.plan_proven(paths, 10)
    assert path.read_text() == "{"


@pytest.mark.parametrize(
    "plan", [lambda p: release_store.plan_restored(p, "systemd", False), lambda p: release_store.plan_proven(p, 10)]
)
def test_without_a_release_there_is_nothing_to_prove_or_restore(paths, plan):
    with pytest.raises(ReleaseError, match="deploy"):
        plan(paths)


@pytest.mark.parametrize("name", ["unit_file", "environment_file"])
def test_a_file_of_somebody_else_is_left_alone(paths, name):
    path = getattr(paths, name)
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/usr/bin/theirs\n")
    with pytest.raises(ReleaseError, match="replace_foreign"):
        release_store.plan_present(wanted(), paths, NOW, False)
    assert not paths.releases_dir.exists()
    release_store.apply(release_store.plan_present(wanted(), paths, NOW, True), paths)
    assert "theirs" not in path.read_text()


def test_a_command_that_no_unit_can_start_is_refused_before_anything_is_written(paths):
    with pytest.raises(ReleaseError, match="absolute path"):
        release_store.plan_present(replace(wanted(), command=["python3"]), paths, NOW, False)
    assert not paths.base_dir.exists()


def test_old_releases_go_and_the_proven_one_and_strangers_stay(paths):
    for minute in range(5):
        deploy(paths, wanted(minute + 1), minutes=minute)
    oldest = sorted(path.name for path in paths.releases_dir.iterdir())[0]
    (paths.releases_dir / "notes").mkdir()
    release_store.apply(release_store.plan_proven(paths, 2), paths)
    left = sorted(path.name for path in paths.releases_dir.iterdir())
    assert len(left) == 3 and "notes" in left and oldest not in left
    assert read_current(paths) == read_last_good(paths)


def test_a_return_to_an_older_current_keeps_it_among_the_newest(paths):
    good = deploy(paths, wanted(1), proven=True)
    for minute in range(1, 4):
        deploy(paths, wanted(minute + 1), minutes=minute)
    release_store.apply(release_store.plan_restored(paths, "systemd", False), paths)
    release_store.apply(release_store.plan_proven(paths, 1), paths)
    assert read_last_good(paths) == good.release


def test_the_links_change_last(paths, monkeypatch):
    deploy(paths, wanted(2))
    before = read_current(paths)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    plan = release_store.plan_present(wanted(3), paths, NOW + timedelta(minutes=1), False)
    monkeypatch.setattr(release_store, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        release_store.apply(plan, paths)
    assert read_current(paths) == before
