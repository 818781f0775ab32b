# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    read_current,
    read_last_good,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases import store as release_store
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import proof_at, read_proof
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang import installation
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import recorded

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


def deploy(paths, release, minutes=0, proven=False, keep=10, texts=None):
    plan = release_store.plan_present(release, paths, NOW + timedelta(minutes=minutes), False, texts)
    release_store.apply(plan, paths)
    if proven:
        prove(paths, keep)
    return plan


def prove(paths, keep=10, **measured):
    plan = release_store.plan_proven(paths, keep, proof_at(measured, NOW))
    release_store.apply(plan, paths)
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
    release_store.apply(release_store.plan_restored(paths, False), paths)
    assert "sk-123456" in paths.secret_args_file.read_text()


def test_a_secrets_file_of_somebody_else_stays(paths):
    deploy(paths, wanted())
    paths.secret_args_file.write_text("mine: 1\n")
    assert deploy(paths, wanted(port=31000)).obsolete == []


def test_proven_is_remembered_once(paths):
    plan = deploy(paths, wanted(), proven=True)
    assert read_last_good(paths) == plan.release
    assert not prove(paths, accept_length=2.8).changes


def test_what_was_measured_lies_beside_the_release(paths):
    plan = deploy(paths, wanted())
    prove(paths, accept_length=2.8, ready_after=541)
    path = paths.release_dir(plan.release.id) / "proof.json"
    assert path.stat().st_mode & 0o777 == 0o644
    assert read_proof(paths, plan.release.id) == proof_at({"accept_length": 2.8, "ready_after": 541}, NOW)


def test_of_a_rank_it_is_remembered_anew_with_whom_it_was_proven(paths):
    plan = deploy(paths, wanted())
    prove(paths, accept_length=2.8, ranks=["r1", "r2"])
    assert not prove(paths, accept_length=2.5, ranks=["r1", "r2"]).changes
    # Another rank has another release by now: what was measured at the start is still true.
    prove(paths, accept_length=2.5, ranks=["r1", "r3"])
    known = read_proof(paths, plan.release.id)
    assert (known.accept_length, known.ranks) == (2.8, ("r1", "r3"))
    assert not prove(paths).changes


def test_a_release_that_is_proven_again_after_another_one_has_a_new_proof(paths):
    first = deploy(paths, wanted(1))
    prove(paths, accept_length=2.8)
    deploy(paths, wanted(2), minutes=1, proven=True)
    release_store.apply(release_store.plan_restored(paths, False, first.release.id), paths)
    prove(paths, accept_length=2.5)
    assert read_proof(paths, first.release.id).accept_length == 2.5


def test_restored_goes_back(paths):
    good = deploy(paths, wanted(2), proven=True)
    deploy(paths, wanted(7), minutes=1)
    plan = release_store.plan_restored(paths, False)
    release_store.apply(plan, paths)
    assert read_current(paths) == good.release
    assert "--speculative-num-steps 2" in paths.unit_file.read_text()
    assert not release_store.plan_restored(paths, False).changes


def test_restored_works_when_the_current_release_is_broken(paths):
    good = deploy(paths, wanted(2), proven=True)
    bad = deploy(paths, wanted(7), minutes=1)
    (paths.releases_dir / bad.release.id / "release.json").write_text("{")
    paths.unit_file.unlink()
    release_store.apply(release_store.plan_restored(paths, False), paths)
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
    "plan", [lambda p: release_store.plan_restored(p, False), lambda p: release_store.plan_proven(p, 10)]
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


def kept(paths):
    return sorted(path.name for path in paths.releases_dir.iterdir())


def test_old_releases_go_and_the_proven_one_and_strangers_stay(paths):
    for minute in range(5):
        deploy(paths, wanted(minute + 1), minutes=minute)
    before = kept(paths)
    (paths.releases_dir / "notes").mkdir()
    prove(paths, keep=2)
    # The one that is now proven, and the newest two of those that were not.
    assert kept(paths) == [*before[2:], "notes"]
    assert read_current(paths) == read_last_good(paths)


def test_a_row_of_failures_pushes_out_nothing_that_was_proven(paths):
    proven = [deploy(paths, wanted(minute), minute, proven=True, keep=3).release.id for minute in range(3)]
    for minute in range(3, 9):
        failed = deploy(paths, wanted(minute), minute).release.id
        release_store.apply(release_store.plan_restored(paths, False), paths)
        prove(paths, keep=3)
    left = kept(paths)
    assert left[:3] == proven and len(left) == 6 and left[-1] == failed
    assert release_store.find_release(paths, "previous").id == proven[1]


def test_the_proven_one_before_stays_whatever_is_to_be_kept(paths):
    proven = [deploy(paths, wanted(minute), minute, proven=True, keep=1).release.id for minute in range(4)]
    assert kept(paths) == proven[2:]


def test_a_proven_release_that_cannot_be_read_takes_no_place_of_another(paths):
    proven = [deploy(paths, wanted(minute), minute, proven=True).release.id for minute in range(4)]
    (paths.release_dir(proven[2]) / "release.json").write_text("{")
    prove(paths, keep=2)
    assert kept(paths) == proven[1:]


def test_the_moment_of_a_switch_is_noted_before_the_link_moves(paths):
    first = deploy(paths, wanted())
    noted = json.loads(paths.current_since_file.read_text())
    assert noted["release"] == first.release.id and noted["boot_id"] and noted["ticks"] > 0
    deploy(paths, wanted(), minutes=1)
    assert json.loads(paths.current_since_file.read_text()) == noted
    moved = release_store.steps(release_store.Plan(first.release, current="x"), paths)
    assert [step.func.__name__ for step in moved] == ["note_switch", "point_link"]


def test_a_return_to_an_older_current_keeps_it_among_the_newest(paths):
    good = deploy(paths, wanted(1), proven=True)
    for minute in range(1, 4):
        deploy(paths, wanted(minute + 1), minutes=minute)
    release_store.apply(release_store.plan_restored(paths, False), paths)
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


def test_the_last_good_one_of_many_stays(paths):
    good = deploy(paths, wanted(1), proven=True)
    for minute in range(1, 5):
        deploy(paths, wanted(minute + 1), minutes=minute)
    plan = release_store.plan_proven(paths, 1)
    assert good.release.id not in [path.name for path in plan.remove]  # it is the proven one before
    release_store.apply(release_store.plan_restored(paths, False), paths)
    assert good.release.id not in [path.name for path in release_store.plan_proven(paths, 1).remove]


# -- files of a release


def test_files_lie_beside_the_release_where_the_server_can_read_them(paths):
    old_mask = os.umask(0o077)
    try:
        plan = deploy(paths, wanted(files={"adaptive.json": "{}"}))
    finally:
        os.umask(old_mask)
    path = paths.current_link / "adaptive.json"
    assert path.read_text() == "{}" and path.stat().st_mode & 0o777 == 0o644
    for folder in (paths.base_dir, paths.releases_dir, paths.release_dir(plan.release.id)):
        assert folder.stat().st_mode & 0o777 == 0o755
    assert not deploy(paths, wanted(files={"adaptive.json": "{}"}), minutes=1).changes


def test_a_file_that_was_changed_by_hand_comes_back(paths):
    first = deploy(paths, wanted(files={"adaptive.json": "{}"}))
    (paths.current_link / "adaptive.json").write_text("[]")
    plan = deploy(paths, wanted(files={"adaptive.json": "{}"}), minutes=1)
    assert plan.release == first.release and plan.restart_needed
    assert (paths.current_link / "adaptive.json").read_text() == "{}"


@pytest.mark.parametrize(
    "name", ["", ".hidden", "a/b", "..", "release.json", "proof.json", "patches", "a\nb", "x" * 101]
)
def test_names_that_are_no_plain_names_are_refused(paths, name):
    with pytest.raises(ReleaseError, match="files: "):
        deploy(paths, wanted(files={name: ""}))
    assert not paths.base_dir.exists()


# -- adopted


def test_an_adopted_server_is_the_current_and_the_last_good_release(paths):
    plan = release_store.plan_adopted(wanted(origin="adopted"), paths, NOW)
    release_store.apply(plan, paths)
    assert read_current(paths) == read_last_good(paths) == plan.release
    assert not paths.unit_file.exists()
    assert not release_store.plan_adopted(wanted(origin="adopted"), paths, NOW + timedelta(hours=1)).changes
    # Its unit is written when it comes back.
    deploy(paths, wanted(7), minutes=1)
    release_store.apply(release_store.plan_restored(paths, False), paths)
    assert read_current(paths) == plan.release and "num-steps 2" in paths.unit_file.read_text()


def test_a_server_that_could_not_come_back_is_not_adopted(paths):
    with pytest.raises(ReleaseError, match="absolute path"):
        release_store.plan_adopted(replace(wanted(), command=["python3"]), paths, NOW)


# -- going back to any


def test_going_back_to_a_release_of_another_manager(paths):
    first = deploy(paths, wanted(1, manager="process"), proven=True)
    deploy(paths, wanted(2), minutes=1, proven=True)
    plan = release_store.plan_restored(paths, False, first.release.id)
    assert plan.files == [] and plan.release.manager == "process"
    release_store.apply(plan, paths)
    (back,) = (path for path in paths.releases_dir.iterdir() if path.name != first.release.id)
    plan = release_store.plan_restored(paths, False, back.name)
    assert plan.release.manager == "systemd"


def test_a_user_that_is_gone_is_noticed_before_anything_is_written(paths):
    deploy(paths, wanted(1), proven=True)
    path = paths.current_link / "release.json"
    path.write_text(path.read_text().replace('"user": ""', '"user": "no-such-user"'))
    with pytest.raises(ReleaseError, match="user 'no-such-user' does not exist"):
        release_store.plan_restored(paths, False)


# -- patches

A = "worker = 'a'\n"
B = "worker = 'b'\n"


@pytest.fixture
def sglang(tmp_path):
    return installation.Installation(tmp_path / "site-packages")


def test_patches_come_and_go_with_their_release(paths, sglang):
    first = deploy(paths, wanted(1), proven=True)
    texts = installation.texts(A)
    second = deploy(paths, wanted(1, patches=[sglang.patch(A)]), 1, True, texts=texts)
    assert second.restart_needed and sglang.path(installation.WORKER).read_text() == A
    assert not deploy(paths, wanted(1, patches=[sglang.patch(A)]), 2, texts=texts).changes
    release_store.apply(release_store.plan_restored(paths, False, first.release.id), paths)
    assert sglang.read() == installation.ORIGINALS
    release_store.apply(release_store.plan_restored(paths, False, second.release.id), paths)
    assert sglang.path(installation.WORKER).read_text() == A


def test_a_patch_that_was_overwritten_comes_back_without_a_new_release(paths, sglang):
    texts = installation.texts(A)
    first = deploy(paths, wanted(patches=[sglang.patch(A)]), texts=texts)
    sglang.reinstall()
    plan = deploy(paths, wanted(patches=[sglang.patch(A)]), 1, texts=texts)
    assert plan.release == first.release and plan.restart_needed
    assert sglang.path(installation.WORKER).read_text() == A


@pytest.mark.parametrize(("damage", "part"), [("other", "has changed"), (None, "No such file"), (b"\xff", "not UTF-8")])
def test_a_release_whose_patch_is_damaged_is_not_restored(paths, sglang, damage, part):
    deploy(paths, wanted(patches=[sglang.patch(A)]), 0, True, texts=installation.texts(A))
    stored = paths.current_link / "patches" / installation.digest(A)
    if damage is None:
        stored.unlink()
    else:
        stored.write_bytes(damage if isinstance(damage, bytes) else damage.encode())
    with pytest.raises(ReleaseError, match=part) as caught:
        release_store.plan_restored(paths, False)
    assert installation.WORKER in str(caught.value)
    # The next deployment brings it back.
    deploy(paths, wanted(patches=[sglang.patch(A)]), 1, texts=installation.texts(A))
    assert not release_store.plan_restored(paths, False).changes


def test_a_release_is_not_restored_into_an_upgraded_package(paths, sglang):
    first = deploy(paths, wanted(1, patches=[sglang.patch(A)]), 0, True, texts=installation.texts(A))
    deploy(paths, wanted(2), 1, True)
    sglang.reinstall(eagle_worker_v2="newer")
    with pytest.raises(ReleaseError, match="of another version") as caught:
        release_store.plan_restored(paths, False, first.release.id)
    assert str(sglang.path(installation.WORKER)) in str(caught.value)
    assert "steps 2" in paths.unit_file.read_text()


def test_in_a_container_patches_lie_in_the_release_only(paths, sglang):
    settings = {"engine": "docker", "engine_path": "/usr/bin/docker", "image": "x"}
    release = wanted(container=settings, patches=[sglang.patch(A)])
    plan = release_store.plan_present(release, paths, NOW, False, installation.texts(A))
    assert not plan.patches.changes
    release_store.apply(plan, paths)
    stored = paths.current_link / "patches" / installation.digest(A)
    assert stored.read_text() == A and stored.stat().st_mode & 0o777 == 0o644
    assert sglang.read() == installation.ORIGINALS


def test_a_release_whose_patches_are_live_is_kept(paths, sglang):
    first = deploy(paths, wanted(1), proven=True)
    killed = release_store.plan_present(
        wanted(2, patches=[sglang.patch(A)]), paths, NOW + timedelta(minutes=1), False, installation.texts(A)
    )
    # Killed before the link moved.
    for step in release_store.steps(killed, paths)[:-1]:
        step()
    for minute in range(2, 5):
        folder = paths.release_dir(release_store.release_id(NOW + timedelta(minutes=minute), "0" * 8))
        folder.mkdir()
        (folder / "release.json").write_text("{}")
    removed = [path.name for path in release_store.plan_proven(paths, 1).remove]
    assert killed.release.id not in removed and first.release.id not in removed and len(removed) == 2


# -- killed at any point


class Killed(BaseException):
    """The run ends here, as by SIGKILL."""


def killed_after(point, plan, paths):
    """Do a plan up to a step; tells whether there were more."""
    todo = release_store.steps(plan, paths)
    for step in todo[:point]:
        step()
    return point < len(todo)


def live(paths, sglang):
    """What a server would be started from, but for the name and the time of the release."""
    files = {path.name: path.read_text() for path in (paths.unit_file, paths.environment_file) if path.exists()}
    secrets = paths.secret_args_file
    return {
        **files,
        "secrets": secrets.read_text() if secrets.exists() else "",
        "content": read_current(paths).content(),
        "beside": {name: (paths.current_link / name).read_text() for name in read_current(paths).files},
        "package": sglang.read(),
    }


def old_one(sglang):
    return wanted(1, patches=[sglang.patch(A)], files={"a.json": "1"}, secret_args={"api-key": "sk-old-key"})


def new_one(sglang):
    return wanted(2, patches=[sglang.patch(B)], files={"b.json": "2"}, environment={"A": "1"})


TEXTS = installation.texts(A, B)
NEXT = {
    "the same": lambda sglang, paths: deploy(paths, new_one(sglang), 60, texts=TEXTS),
    "the old one": lambda sglang, paths: deploy(paths, old_one(sglang), 60, texts=TEXTS),
    "restored": lambda sglang, paths: release_store.apply(release_store.plan_restored(paths, False), paths),
}


@pytest.mark.parametrize("following", sorted(NEXT))
def test_a_deployment_that_is_killed_between_any_two_steps_is_finished_by_the_next_run(tmp_path, following):
    point, more = 0, True
    while more:
        root = tmp_path / str(point)
        sglang = installation.Installation(root / "site-packages")
        paths = InstancePaths("main", str(root / "s"), etc_dir=str(root / "e"), unit_dir=str(root / "u"))
        deploy(paths, old_one(sglang), 0, True, texts=TEXTS)
        old = live(paths, sglang)
        plan = release_store.plan_present(new_one(sglang), paths, NOW + timedelta(minutes=5), False, TEXTS)
        more = killed_after(point, plan, paths)
        # The links never name what is not whole.
        assert read_current(paths).content() in (old_one(sglang).content(), new_one(sglang).content())
        NEXT[following](sglang, paths)
        if following == "the same":
            assert read_current(paths).content() == new_one(sglang).content()
            assert "steps 2" in paths.unit_file.read_text() and 'A="1"' in paths.environment_file.read_text()
            assert not paths.secret_args_file.exists()
            assert sglang.path(installation.WORKER).read_text() == B
        else:
            assert live(paths, sglang) == old, point
        # And it leaves nothing more to do.
        again = read_current(paths)
        texts = release_store.read_patch_texts(again, paths)
        assert not release_store.plan_present(again, paths, NOW + timedelta(hours=2), False, texts).changes
        prove(paths, keep=1)
        assert all((folder / "release.json").exists() for folder in paths.releases_dir.iterdir())
        point += 1
    assert point > 8


@pytest.mark.parametrize("following", ["restored", "the same"])
def test_a_return_that_is_killed_between_any_two_steps_is_finished_by_the_next_run(tmp_path, following):
    point, more = 0, True
    while more:
        root = tmp_path / str(point)
        sglang = installation.Installation(root / "site-packages")
        paths = InstancePaths("main", str(root / "s"), etc_dir=str(root / "e"), unit_dir=str(root / "u"))
        deploy(paths, old_one(sglang), 0, True, texts=TEXTS)
        old = live(paths, sglang)
        deploy(paths, new_one(sglang), 5, True, texts=TEXTS)
        new = live(paths, sglang)
        more = killed_after(point, release_store.plan_restored(paths, False, "previous"), paths)
        if following == "restored":
            release_store.apply(release_store.plan_restored(paths, False, "previous"), paths)
            assert live(paths, sglang) == old, point
        else:
            deploy(paths, new_one(sglang), 60, texts=TEXTS)
            assert live(paths, sglang) == new, point
        point += 1
    assert point > 5


def test_a_proof_that_is_killed_between_any_two_steps_is_finished_by_the_next_run(tmp_path):
    point, more = 0, True
    while more:
        paths = InstancePaths("main", str(tmp_path / str(point)))
        # Proven, three that failed, and the one that is proven now.
        ids = [
            deploy(paths, wanted(minute, manager="process"), minute, proven=minute == 0).release.id
            for minute in range(5)
        ]
        plan = release_store.plan_proven(paths, 1, proof_at({}, NOW))
        more = killed_after(point, plan, paths)
        assert read_last_good(paths) is not None
        prove(paths, keep=1)
        assert read_last_good(paths) == read_current(paths) and read_proof(paths, plan.release.id) is not None
        assert kept(paths) == [ids[0], *ids[3:]]
        point += 1
    assert point > 4


def test_what_a_killed_run_left_of_files_and_folders_goes(paths):
    plan = deploy(paths, wanted(files={"a.json": "1"}), proven=True)
    folder = paths.release_dir(plan.release.id)
    left = [
        paths.base_dir / ".current.0123456789ab",
        paths.unit_file.with_name(".sglang-main.service.0123456789ab"),
        paths.environment_file.with_name(".environment.0123456789ab"),
        folder / ".a.json.0123456789ab",
        folder / ".proof.json.0123456789ab",
    ]
    theirs = [paths.unit_file.with_name(".sglang-other.service.0123456789ab"), paths.base_dir / ".current.swp"]
    left[0].symlink_to("releases/none")
    for path in left[1:] + theirs:
        path.write_text("half")
    unfinished = paths.releases_dir / "20261130T104600Z-00000000"
    removed = paths.releases_dir / ".removed-20261130T104700Z-00000000-01234567"
    for path in (unfinished, removed):
        path.mkdir()
        (path / "a.json").write_text("1")
    prove(paths)
    assert not any(path.is_symlink() or path.exists() for path in [*left, unfinished, removed])
    assert all(path.exists() for path in theirs)


def test_a_release_that_is_being_removed_is_never_half_a_release(paths, monkeypatch):
    for minute in range(3):
        deploy(paths, wanted(minute, manager="process"), minute)

    def killed(folder):
        (folder / "release.json").unlink()
        raise Killed

    monkeypatch.setattr(release_store.shutil, "rmtree", killed)
    with pytest.raises(Killed):
        prove(paths, keep=1)
    monkeypatch.undo()
    assert all((path / "release.json").exists() for path in release_store.release_folders(paths))
    prove(paths, keep=1)
    assert len(kept(paths)) == 2


# -- what is recorded


@pytest.fixture
def audit(tmp_path):
    return AuditLog(str(tmp_path / "audit.jsonl"), journal="/none")


def test_a_release_is_recorded_with_what_it_replaces(paths, audit, tmp_path):
    before = deploy(paths, wanted(1)).release.id
    plan = release_store.plan_present(wanted(2), paths, NOW + timedelta(minutes=1), False)
    release_store.apply(plan, paths, audit, "present")
    begun, done = recorded(tmp_path / "audit.jsonl")
    assert (begun["outcome"], done["outcome"], done["action"]) == ("begun", "written", "configuration")
    assert done["target"] == {"instance": "main", "release": plan.release.id, "state_dir": paths.state_dir}
    assert done["evidence"] == {
        "why": "present",
        "manager": "systemd",
        "previous": before,
        "current": plan.release.id,
        "files": [str(paths.release_dir(plan.release.id) / "release.json"), str(paths.unit_file)],
    }


def test_a_proof_and_what_is_removed_are_recorded(paths, audit, tmp_path):
    for minute in range(3):
        deploy(paths, wanted(minute), minute, proven=True)
    plan = release_store.plan_proven(paths, 1, proof_at({}, NOW))
    release_store.apply(plan, paths, audit, "proven")
    evidence = recorded(tmp_path / "audit.jsonl")[-1]["evidence"]
    assert evidence == {"why": "proven", "manager": "systemd", "removed": [str(path) for path in plan.remove]}
    assert len(plan.remove) == 1


def test_where_nothing_is_written_nothing_is_recorded(paths, audit, tmp_path):
    deploy(paths, wanted())
    plan = release_store.plan_present(wanted(), paths, NOW, False)
    release_store.apply(plan, paths, audit, "present")
    assert recorded(tmp_path / "audit.jsonl") == []


def test_a_step_that_fails_is_recorded(paths, audit, tmp_path):
    plan = release_store.plan_present(wanted(), paths, NOW, False)
    paths.releases_dir.parent.mkdir(parents=True)
    paths.releases_dir.write_text("in the way")
    with pytest.raises(OSError):
        release_store.apply(plan, paths, audit, "present")
    _begun, failed = recorded(tmp_path / "audit.jsonl")
    assert failed["outcome"] == "failed" and "releases" in failed["detail"]


def test_a_patch_is_recorded_by_its_checksum(paths, sglang):
    plan = release_store.plan_present(wanted(patches=[sglang.patch(A)]), paths, NOW, False, installation.texts(A))
    assert release_store.recorded(plan, paths, "present")["patched"] == [
        {
            "path": str(sglang.path(installation.WORKER)),
            "restored": False,
            "sha256": sglang.patch(A)["sha256_after"],
        }
    ]
