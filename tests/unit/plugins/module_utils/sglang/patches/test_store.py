# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.store import (
    known_patches,
    patch_steps,
    plan_patches,
    releases_with_patches,
    replace_source,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import ReleaseError
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.installation import (
    ORIGINALS,
    UTILS,
    WORKER,
    Installation,
    bring,
    digest,
    release,
    texts,
)

A, B, C = "worker = 'a'\n", "worker = 'b'\n", "utils = 'c'\n"


@pytest.fixture
def sglang(tmp_path):
    return Installation(tmp_path / "venv" / "site-packages")


@pytest.fixture
def paths(tmp_path):
    return InstancePaths("main", str(tmp_path / "state"))


@pytest.fixture
def other(paths):
    """A second instance of the host."""
    return InstancePaths("other", paths.state_dir)


def kept(paths):
    """All files that we keep of installations."""
    folder = Path(paths.state_dir) / ".patches"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_patch_goes_in_and_comes_out(sglang, paths):
    plan = bring(release(patches=[sglang.patch(A)]), paths, A)
    assert plan.changes and [change.forward for change in plan.files] == [True]
    assert sglang.read() == {**ORIGINALS, WORKER: A}
    assert not plan_patches(release(patches=[sglang.patch(A)]), paths, texts(A)).changes
    plan = bring(release(), paths)
    assert [change.forward for change in plan.files] == [False]
    assert sglang.read() == ORIGINALS
    assert kept(paths) == []
    assert not plan_patches(release(), paths, {}).changes


def test_owner_and_mode_stay(sglang, paths):
    path = sglang.path(WORKER)
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    before = path.stat()
    bring(release(patches=[sglang.patch(A)]), paths, A)
    changed = path.stat()
    bring(release(), paths)
    for after in (changed, path.stat()):
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_a_hard_link_of_a_package_cache_is_not_written_through(sglang, paths, tmp_path):
    cached = tmp_path / "cached.py"
    os.link(sglang.path(WORKER), cached)
    bring(release(patches=[sglang.patch(A)]), paths, A)
    assert cached.read_text() == ORIGINALS[WORKER] and sglang.path(WORKER).read_text() == A


def test_one_patch_follows_another(sglang, paths):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    bring(release(patches=[sglang.patch(B)]), paths, B)
    assert sglang.path(WORKER).read_text() == B
    (known,) = known_patches(paths.state_dir)
    assert known["ours"] == [digest(B)] and known["sha256_before"] == digest(ORIGINALS[WORKER])
    bring(release(), paths)
    assert sglang.read() == ORIGINALS


def test_a_release_takes_out_what_it_does_not_name(sglang, paths):
    bring(release(patches=[sglang.patch(A), sglang.patch(C, UTILS)]), paths, A, C)
    bring(release(patches=[sglang.patch(C, UTILS)]), paths, C)
    assert sglang.read() == {**ORIGINALS, UTILS: C}


def test_another_installation_is_put_back_too(sglang, paths, tmp_path):
    newer = Installation(tmp_path / "newer")
    bring(release(patches=[sglang.patch(A)]), paths, A)
    bring(release(patches=[newer.patch(B)]), paths, B)
    assert sglang.read() == ORIGINALS and newer.path(WORKER).read_text() == B


def test_an_installation_behind_a_link_is_the_same_one(sglang, paths, other, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(sglang.root)
    bring(release(patches=[sglang.patch(A)]), paths, A)
    through = dict(sglang.patch(A), path=str(link / WORKER))
    assert not bring(release("other", [through]), other, A).files
    with pytest.raises(ReleaseError, match="patched otherwise for main"):
        plan_patches(release("other", [dict(sglang.patch(B), path=str(link / WORKER))]), other, texts(B))


def test_a_file_stays_patched_while_another_instance_wants_it(sglang, paths, other):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    assert not bring(release("other", [sglang.patch(A)]), other, A).files
    assert not bring(release(), paths).files
    assert sglang.path(WORKER).read_text() == A
    bring(release("other"), other)
    assert sglang.read() == ORIGINALS and kept(paths) == []


def test_another_instance_that_wants_it_otherwise_is_named_before_anything_is_touched(sglang, paths, other):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    before = kept(paths)
    wanted = release("other", [sglang.patch(C, UTILS), sglang.patch(B)])
    with pytest.raises(ReleaseError, match="patched otherwise for main,"):
        plan_patches(wanted, other, texts(B, C))
    assert sglang.read() == {**ORIGINALS, WORKER: A} and kept(paths) == before


def test_a_file_that_somebody_else_changed_is_refused(sglang, paths):
    sglang.path(WORKER).write_text("by hand\n")
    with pytest.raises(ReleaseError, match="somebody else changed it") as caught:
        plan_patches(release(patches=[sglang.patch(A)]), paths, texts(A))
    assert digest("by hand\n") in str(caught.value) and str(sglang.path(WORKER)) in str(caught.value)


def test_a_file_that_is_gone_is_refused(sglang, paths):
    sglang.path(WORKER).unlink()
    with pytest.raises(ReleaseError, match="does not exist"):
        plan_patches(release(patches=[sglang.patch(A)]), paths, texts(A))


def test_a_path_must_belong_to_its_target(sglang, paths):
    for path in ("", "relative/" + WORKER, str(sglang.path(UTILS))):
        with pytest.raises(ReleaseError, match="path of"):
            plan_patches(release(patches=[dict(sglang.patch(A), path=path)]), paths, texts(A))


def test_an_upgrade_is_not_taken_back(sglang, paths):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    sglang.reinstall(eagle_worker_v2="worker = 'of the next version'\n")
    plan = bring(release(), paths)
    assert plan.forgotten == [sglang.path(WORKER)] and not plan.files
    assert sglang.path(WORKER).read_text() == "worker = 'of the next version'\n"
    assert kept(paths) == []


def test_a_patch_of_the_upgraded_file_follows_one_of_the_older_one(sglang, paths):
    newer = "worker = 'of the next version'\n"
    bring(release(patches=[sglang.patch(A)]), paths, A)
    sglang.reinstall(eagle_worker_v2=newer)
    with pytest.raises(ReleaseError, match="of another version"):
        plan_patches(release(patches=[sglang.patch(A)]), paths, texts(A))
    bring(release(patches=[sglang.patch(B, before=newer)]), paths, B)
    assert kept(paths) == sorted([digest(newer), "manifest.json"])
    bring(release(), paths)
    assert sglang.path(WORKER).read_text() == newer


def test_a_package_that_was_removed_is_forgotten(sglang, paths):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    sglang.path(WORKER).unlink()
    assert bring(release(), paths).forgotten == [sglang.path(WORKER)]
    assert kept(paths) == []


def test_a_reinstalled_package_is_patched_again(sglang, paths):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    sglang.reinstall()
    plan = bring(release(patches=[sglang.patch(A)]), paths, A)
    assert plan.touches_files and sglang.path(WORKER).read_text() == A


def test_a_patch_whose_original_is_lost_is_not_taken_out(sglang, paths):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    (original,) = (path for path in (Path(paths.state_dir) / ".patches").rglob("originals/*"))
    original.write_text("damaged")
    with pytest.raises(ReleaseError, match="install that version of SGLang anew") as caught:
        plan_patches(release(), paths, {})
    assert str(original) in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 2, "package": "/x", "patches": {}}'])
def test_a_broken_manifest_is_named(sglang, paths, text):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    (manifest,) = (Path(paths.state_dir) / ".patches").rglob("manifest.json")
    manifest.write_text(text)
    for call in (lambda: plan_patches(release(), paths, {}), lambda: known_patches(paths.state_dir)):
        with pytest.raises(ReleaseError, match="cannot be used") as caught:
            call()
        assert str(manifest) in str(caught.value)


def test_in_a_container_the_installation_of_the_host_is_left_alone(sglang, paths):
    wanted = release(patches=[dict(sglang.patch(A), path="/in/the/image/" + WORKER)], container={"engine": "docker"})
    assert not plan_patches(wanted, paths, texts(A)).changes


def test_a_move_into_a_container_takes_the_patch_out_of_the_host(sglang, paths):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    bring(release(patches=[sglang.patch(A)], container={"engine": "docker"}), paths, A)
    assert sglang.read() == ORIGINALS


def test_what_is_known_is_told_with_who_wants_it(sglang, paths, other):
    assert known_patches(paths.state_dir) == []
    bring(release(patches=[sglang.patch(A)], identity="r1"), paths, A)
    bring(release("other", [sglang.patch(A)], identity="r2"), other, A)
    assert known_patches(paths.state_dir) == [
        dict(sglang.patch(A), ours=[digest(A)], wanted_by={"main": "r1", "other": "r2"})
    ]
    assert releases_with_patches(paths) == {"r1"} and releases_with_patches(other) == {"r2"}


def test_what_a_killed_run_left_behind_goes(sglang, paths):
    bring(release(patches=[sglang.patch(A)]), paths, A)
    left = sglang.path(WORKER).with_name(".eagle_worker_v2.py.0123456789ab")
    theirs = sglang.path(WORKER).with_name(".eagle_worker_v2.py.swp")
    for path in (left, theirs):
        path.write_text("half")
    bring(release(patches=[sglang.patch(A)]), paths, A)
    assert not left.exists() and theirs.exists()


# -- killed at any point

STATES = {
    "nothing": (),
    "a": (A,),
    "b": (B,),
    "c": (C,),
    "a and c": (A, C),
    "b and c": (B, C),
}


def in_state(sglang, name):
    return [sglang.patch(text, UTILS if text == C else WORKER) for text in STATES[name]]


def expected(name):
    found = dict(ORIGINALS)
    for text in STATES[name]:
        found[UTILS if text == C else WORKER] = text
    return found


@pytest.mark.parametrize("after", ["a", "b and c", "nothing"])
@pytest.mark.parametrize("towards", ["nothing", "a", "b", "b and c"])
@pytest.mark.parametrize("before", ["nothing", "a", "a and c"])
def test_a_run_that_is_killed_between_any_two_steps_is_finished_by_the_next(tmp_path, before, towards, after):
    count = 1
    point = 0
    while point <= count:
        root = tmp_path / str(point)
        sglang = Installation(root / "site-packages")
        paths = InstancePaths("main", str(root / "state"))
        bring(release(patches=in_state(sglang, before)), paths, *STATES[before])
        plan = plan_patches(release(patches=in_state(sglang, towards)), paths, texts(*STATES[towards]))
        steps = patch_steps(plan)
        count = len(steps)
        for step in steps[:point]:
            step()
        # Nothing is half-written: each file is the old or the new one.
        for target, text in sglang.read().items():
            assert text in (expected(before)[target], expected(towards)[target])
        bring(release(patches=in_state(sglang, after)), paths, *STATES[after])
        assert sglang.read() == expected(after), (point, count)
        bring(release(), paths)
        assert sglang.read() == ORIGINALS and kept(paths) == []
        point += 1


MOVES = st.lists(
    st.tuples(st.sampled_from(["main", "other"]), st.sampled_from(sorted(STATES)), st.integers(0, 9)), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_whatever_two_instances_do_the_original_comes_back(moves):
    """Each move brings an instance to a state and may be killed after some steps (9: it never is)."""
    with tempfile.TemporaryDirectory() as folder:
        sglang = Installation(Path(folder) / "site-packages")
        state_dir = str(Path(folder) / "state")
        wanted = {"main": "nothing", "other": "nothing"}
        for instance, state, point in moves:
            paths = InstancePaths(instance, state_dir)
            try:
                plan = plan_patches(release(instance, in_state(sglang, state)), paths, texts(*STATES[state]))
            except ReleaseError as error:
                assert "patched otherwise" in str(error)
                continue
            steps = patch_steps(plan)
            for step in steps[: len(steps) if point == 9 else point]:
                step()
            if point == 9:
                wanted[instance] = state
                there = sglang.read()
                assert all(there[target] == text for target, text in expected(state).items() if text in STATES[state])
        for instance in ("main", "other"):
            bring(release(instance), InstancePaths(instance, state_dir))
        assert sglang.read() == ORIGINALS
        assert kept(InstancePaths("main", state_dir)) == []


# -- compiled files


def value_of(path, *options):
    """What Python finds in a source when it imports it."""
    code = f"import sys; sys.path.insert(0, {str(path.parent)!r}); import {path.stem}; print({path.stem}.value)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "a_module.py"
    path.write_text("value = 1\n")
    return path


def test_a_compiled_file_of_the_same_second_and_size_does_not_hide_the_patch(source):
    assert value_of(source) == "1"
    then = source.stat().st_mtime
    assert list((source.parent / "__pycache__").iterdir())
    replace_source(source, b"value = 2\n", now=lambda: then)
    assert int(source.stat().st_mtime) == int(then) + 1
    assert value_of(source) == "2"
    replace_source(source, b"value = 1\n", now=lambda: then)
    assert int(source.stat().st_mtime) == int(then) + 2
    assert value_of(source) == "1"


def test_a_compiled_file_that_is_kept_elsewhere_does_not_hide_the_patch(source, tmp_path):
    elsewhere = ("-X", f"pycache_prefix={tmp_path / 'cache'}")
    assert value_of(source, *elsewhere) == "1"
    replace_source(source, b"value = 2\n", now=lambda: source.stat().st_mtime)
    assert value_of(source, *elsewhere) == "2"


def test_a_compiled_file_that_is_never_compared_does_not_hide_the_patch(source):
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), invalidation_mode=unchecked, doraise=True)
    py_compile.compile(str(source), optimize=1, invalidation_mode=unchecked, doraise=True)
    foreign = Path(importlib.util.cache_from_source(str(source.with_name("a_module_v2.py"))))
    foreign.write_bytes(b"of another source")
    replace_source(source, b"value = 2\n")
    assert value_of(source) == "2" and value_of(source, "-O") == "2"
    assert foreign.exists()


def test_a_source_from_the_future_moves_on_too(source):
    os.utime(source, (4e9, 4e9))
    replace_source(source, b"value = 2\n")
    assert int(source.stat().st_mtime) == 4_000_000_001


def test_the_manifest_can_be_read_by_people(sglang, paths):
    bring(release(patches=[sglang.patch(A)], identity="r1"), paths, A)
    (manifest,) = (Path(paths.state_dir) / ".patches").rglob("manifest.json")
    assert json.loads(manifest.read_text()) == {
        "format": 1,
        "package": str(sglang.root),
        "patches": {
            WORKER: {
                "sha256_before": digest(ORIGINALS[WORKER]),
                "sha256_after": digest(A),
                "ours": [digest(A)],
                "wanted_by": {"main": "r1"},
            }
        },
    }
