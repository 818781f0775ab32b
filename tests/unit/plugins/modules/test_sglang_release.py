# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_release
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import locked
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.modules import sglang_release as documented_module
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang import installation
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import recorded


@pytest.fixture
def paths(tmp_path):
    folders = {name: str(tmp_path / name) for name in ("state_dir", "etc_dir", "unit_dir")}
    return InstancePaths("main", **folders)


@pytest.fixture
def release(run_module, paths):
    """Run the module."""

    def run(state="present", steps=2, check=False, diff=False, **changes):
        args = {name: getattr(paths, name) for name in ("state_dir", "etc_dir", "unit_dir")}
        args["state"] = state
        if state == "present":
            args["command"] = ["/usr/bin/python3", "-m", "sglang.launch_server", "--speculative-num-steps", str(steps)]
        return run_module(sglang_release, dict(args, **changes), check=check, diff=diff)

    return run


def everything(paths):
    root = paths.base_dir.parent.parent
    return {str(p): os.readlink(p) if p.is_symlink() else p.read_text() for p in root.rglob("*") if not p.is_dir()}


def test_present_then_the_same_again(release, paths):
    code, first = release()
    assert (code, first["changed"]) == (0, True)
    assert first["release"]["restart_needed"] is True
    assert first["release"]["previous_id"] is None and first["release"]["last_good_id"] is None
    assert json.loads((paths.current_link / "release.json").read_text())["id"] == first["release"]["id"]
    assert first["release"]["path"] == str(paths.releases_dir / first["release"]["id"] / "release.json")
    assert first["files"] == [str(paths.environment_file), str(paths.unit_file)]
    code, again = release()
    assert (code, again["changed"]) == (0, False)
    assert again["release"]["id"] == again["release"]["previous_id"] == first["release"]["id"]
    assert again["release"]["restart_needed"] is False


def test_the_way_there_and_back(release, paths):
    good = release(steps=2)[1]["release"]["id"]
    proven = release("proven")[1]
    assert proven["changed"] and proven["release"]["last_good_id"] == good
    assert release("proven")[1]["changed"] is False
    bad = release(steps=7)[1]["release"]
    assert bad["previous_id"] == bad["last_good_id"] == good
    back = release("restored")[1]
    assert back["changed"] and back["release"]["restart_needed"]
    assert (back["release"]["id"], back["release"]["previous_id"]) == (good, bad["id"])
    assert "--speculative-num-steps 2" in paths.unit_file.read_text()
    assert release("restored")[1]["changed"] is False


@pytest.mark.parametrize("state", ["present", "proven", "restored"])
def test_check_mode_says_the_same_and_writes_nothing(release, paths, state):
    if state != "present":
        release(steps=2)
    if state == "restored":
        release("proven")
        release(steps=7)
    before = everything(paths)
    code, planned = release(state, steps=3, check=True, diff=True)
    assert code == 0 and planned["changed"] is True
    assert everything(paths) == before
    done = release(state, steps=3)[1]
    for key in ("changed", "files", "removed"):
        assert planned[key] == done[key]
    assert planned["release"]["previous_id"] == done["release"]["previous_id"]


def test_every_returned_key_is_documented(release, paths):
    documented = yaml.safe_load(documented_module.RETURN)
    common = {"changed", "invocation", "warnings", "deprecations"}
    for state, only in (("present", set()), ("proven", set()), ("restored", set()), ("inspected", {"releases"})):
        result = release(state)[1]
        assert set(result) - common == set(documented) - {"releases"} | only
        assert set(result["release"]) == set(documented["release"]["contains"])
    (entry,) = result["releases"]
    assert set(entry) == set(documented["releases"]["contains"]) - {"broken"}


def test_every_option_is_documented():
    documented = set(yaml.safe_load(documented_module.DOCUMENTATION)["options"])
    documented |= {"instance", "state_dir", "manager", "audit_path"}
    assert documented == set(sglang_release.argument_spec())


SECRETS = {"environment": {"HF_TOKEN": "hf_s3cr3t", "A": "1"}, "secret_args": {"api-key": "k-s3cr3t"}}


def test_secrets_reach_the_server_and_nobody_else(release, paths):
    code, result = release(diff=True, **SECRETS)
    assert code == 0
    assert "s3cr3t" not in json.dumps(result)
    assert '"HF_TOKEN": "********"' in result["diff"][0]["after"] and '"A": "1"' in result["diff"][0]["after"]
    assert 'HF_TOKEN="hf_s3cr3t"' in paths.environment_file.read_text()
    assert "s3cr3t" not in paths.unit_file.read_text()
    assert f"--config {paths.secret_args_file}" in paths.unit_file.read_text()
    assert yaml.safe_load(paths.secret_args_file.read_text()) == {"api-key": "k-s3cr3t"}
    for path in (paths.secret_args_file, paths.environment_file, paths.current_link / "release.json"):
        assert path.stat().st_mode & 0o077 == 0


def test_secrets_of_an_old_release_do_not_show_when_it_comes_back(release):
    release(**SECRETS)
    release("proven")
    release(steps=7)
    code, result = release("restored", diff=True)
    assert code == 0 and result["changed"]
    assert "s3cr3t" not in json.dumps(result)


def test_secrets_of_the_release_before_do_not_show_in_the_difference(release):
    release(**SECRETS)
    result = release(steps=7, diff=True)[1]
    assert "s3cr3t" not in json.dumps(result)
    assert "--speculative-num-steps" in result["diff"][0]["before"]


def test_ansible_does_not_log_secrets_on_the_host(release, monkeypatch):
    logged = []
    monkeypatch.setattr(
        sglang_release.AnsibleModule, "log", lambda self, msg, log_args=None: logged.append(f"{msg} {log_args}")
    )
    release(**SECRETS)
    assert logged and "s3cr3t" not in "".join(logged)


def test_the_difference_shows_what_changes(release, paths):
    release(steps=2)
    (shown, unit) = release(steps=3, diff=True)[1]["diff"]
    assert shown["before_header"] == str(paths.current_link)
    assert '"2"' in shown["before"] and '"3"' in shown["after"]
    assert unit["after_header"] == str(paths.unit_file)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"instance": "No"}, "instance: 'No'"),
        ({"state_dir": "relative/../x", "instance": "-"}, "instance: '-'"),
        ({"stop_timeout": 0}, "stop_timeout is 0"),
        ({"stop_timeout": -5}, "stop_timeout is -5"),
        ({"port": 70000}, "port is 70000"),
        ({"keep": 0}, "keep is 0"),
        ({"user": "no-such-user"}, "user 'no-such-user'"),
        ({"command": ["python3", "x"]}, "absolute path"),
        ({"command": []}, "command"),
        ({"command": ["/usr/bin/python3", "--api-key", "********"]}, "secret_args"),
        ({"environment": {"HF_TOKEN": "********"}}, "HF_TOKEN"),
        ({"secret_args": {"--api-key": "x"}}, "write it like api-key"),
        ({"secret_args": {"api-key": "-x"}}, "api-key in secret_args"),
        ({"secret_args": {"api-key": "x"}, "command": ["/usr/bin/python3", "--config", "/f.yaml"]}, "--config"),
    ],
)
def test_bad_options_are_named_and_nothing_is_written(release, paths, options, part):
    code, result = release(**options)
    assert code == 1 and part in result["msg"], result["msg"]
    assert everything(paths) == {}


def test_present_needs_a_command(release):
    for command in (None, []):
        code, result = release(command=command)
        assert code == 1 and "command" in result["msg"]


def test_restored_without_a_proven_release(release, paths):
    release(steps=2)
    before = everything(paths)
    code, result = release("restored")
    assert code == 1 and "no proven release of main" in result["msg"] and str(paths.last_good_link) in result["msg"]
    assert everything(paths) == before


def test_a_broken_release_is_named_and_not_written_over(release, paths):
    path = release(steps=2)[1]["release"]["path"]
    release("proven")
    with open(path, "w") as stream:
        stream.write("{")
    before = everything(paths)
    for state in ("present", "proven", "restored"):
        code, result = release(state, steps=3)
        assert code == 1 and "release.json" in result["msg"] and "remove the link" in result["msg"]
    assert everything(paths) == before


def test_a_unit_of_somebody_else(release, paths):
    paths.unit_file.parent.mkdir()
    paths.unit_file.write_text("[Service]\nExecStart=/bin/theirs\n")
    code, result = release()
    assert code == 1 and str(paths.unit_file) in result["msg"] and "replace_foreign" in result["msg"]
    assert release(replace_foreign=True)[0] == 0


def test_a_folder_that_cannot_be_used_is_named(release, paths, tmp_path):
    (tmp_path / "state_dir").write_text("a file")
    code, result = release()
    assert code == 1 and str(tmp_path / "state_dir") in result["msg"]


def test_values_arrive_as_they_are(release, paths):
    release(
        manager="process",
        environment={"FLAG": True, "NUMBER": 1},
        effective={"speculative_algorithm": None, "tp_size": 8, "mem_fraction_static": 0.8},
        gpus=["GPU-1"],
        host="0.0.0.0",
        port=30001,
        sglang_version="0.5.17",
        stop_timeout=90,
    )
    stored = json.loads((paths.current_link / "release.json").read_text())
    assert stored["environment"] == {"FLAG": "true", "NUMBER": "1"}
    assert stored["effective"] == {"speculative_algorithm": None, "tp_size": 8, "mem_fraction_static": 0.8}
    assert (stored["gpus"], stored["host"], stored["port"], stored["stop_timeout"]) == (
        ["GPU-1"],
        "0.0.0.0",
        30001,
        90.0,
    )
    assert (stored["format"], stored["manager"], stored["sglang_version"]) == (1, "process", "0.5.17")


# -- any release


def test_inspected_lists_releases_and_writes_nothing(release, paths):
    code, nothing = release("inspected")
    assert (code, nothing["changed"], nothing["releases"], nothing["release"]["id"]) == (0, False, [], None)
    assert not paths.base_dir.exists()
    first = release(steps=2, requested={"speculative_algorithm": "EAGLE3", "api_key": "k-s3cr3t"})[1]["release"]["id"]
    release("proven", proof={"accept_length": 2.8, "ready_after": 541.2, "phases": [{"name": "w", "seconds": 3}]})
    second = release(steps=3)[1]["release"]["id"]
    before = everything(paths)
    code, result = release("inspected")
    assert (code, result["changed"]) == (0, False) and everything(paths) == before
    entries = {entry["id"]: entry for entry in result["releases"]}
    assert set(entries) == {first, second}
    assert entries[first]["proven"] and entries[first]["last_good"] and not entries[first]["current"]
    assert (entries[first]["accept_length"], entries[first]["ready_after"]) == (2.8, 541.2)
    assert entries[second]["current"] and not entries[second]["proven"]
    assert entries[first]["requested"] == {"speculative_algorithm": "EAGLE3"}
    assert (result["release"]["id"], result["release"]["last_good_id"]) == (second, first)


def test_inspected_survives_a_broken_release(release):
    path = release()[1]["release"]["path"]
    with open(path, "w") as stream:
        stream.write("{")
    code, result = release("inspected")
    assert code == 0 and "not JSON" in result["releases"][0]["broken"]


def test_restored_goes_to_any_release_that_is_kept(release, paths):
    first = release(steps=2)[1]["release"]["id"]
    release("proven")
    second = release(steps=3)[1]["release"]["id"]
    release("proven")
    assert release("restored", release="previous")[1]["release"]["id"] == first
    release("proven")
    assert release("restored", release=second)[1]["release"]["id"] == second
    code, result = release("restored", release="1999")
    assert (
        code == 1 and "has no release '1999'" in result["msg"] and first in result["msg"] and "proven" in result["msg"]
    )


def test_restored_takes_the_manager_of_the_release(release, paths):
    release(steps=2, manager="process")
    release("proven", manager="process")
    code, result = release("restored", manager="systemd")
    assert (code, result["changed"], result["files"]) == (0, False, [])
    assert not paths.unit_file.exists()


@pytest.mark.parametrize(
    ("proof", "part"), [({"ready_after": -1}, "proof: ready_after is -1"), ({"phases": [1]}, "proof: phases has 1")]
)
def test_a_proof_that_means_nothing(release, paths, proof, part):
    release()
    code, result = release("proven", proof=proof)
    assert code == 1 and part in result["msg"] and not paths.last_good_link.exists()


# -- files, containers, patches


def test_files_are_written_beside_the_release_and_shown(release, paths):
    release(files={"a.json": "1\n"})
    code, result = release(files={"a.json": "2\n"}, diff=True)
    assert code == 0 and (paths.current_link / "a.json").read_text() == "2\n"
    (shown,) = [item for item in result["diff"] if item["after_header"].endswith("current/a.json")]
    assert (shown["before"], shown["after"]) == ("1\n", "2\n")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"files": {"../x": ""}}, "files: '../x'"),
        ({"files": {"release.json": ""}}, "files: 'release.json'"),
        ({"container": {"engine": "docker"}, "manager": "process"}, "container needs manager=systemd"),
        ({"container": {"engine": "docker"}}, "container: "),
        ({"patches": [{"target": "x", "sha256_before": "0" * 64, "content": ""}]}, "patches: the target 'x'"),
        ({"patches": [{"target": "sglang/x.py", "sha256_before": "0" * 64}]}, "has no content"),
        ({"patches": [{"target": "sglang/x.py", "sha256_before": "0" * 64, "content": "1"}]}, "path of sglang/x.py"),
    ],
)
def test_bad_files_containers_and_patches_are_named_and_nothing_is_written(release, paths, options, part):
    code, result = release(**options)
    assert code == 1 and part in result["msg"], result["msg"]
    assert everything(paths) == {}


@pytest.fixture
def sglang(tmp_path):
    return installation.Installation(tmp_path / "site-packages")


def patch(sglang, text):
    """A patch as the action plugin hands it over."""
    stored = sglang.patch(text)
    return dict({name: stored[name] for name in ("target", "path", "sha256_before")}, src="p.py", content=text)


A = "worker = 'a'\n"


def test_a_patch_comes_and_goes_and_is_shown(release, paths, sglang):
    target = str(sglang.path(installation.WORKER))
    release(steps=2)
    release("proven")
    checked = release(steps=2, patches=[patch(sglang, A)], check=True, diff=True)[1]
    assert sglang.read() == installation.ORIGINALS and not (paths.base_dir.parent / ".patches").exists()
    done = release(steps=2, patches=[patch(sglang, A)], diff=True)[1]
    assert sglang.path(installation.WORKER).read_text() == A
    for result in (checked, done):
        assert result["patched"] == [{"path": target, "restored": False}] and result["release"]["restart_needed"]
        (shown,) = [item for item in result["diff"] if item["after_header"] == target]
        assert (shown["before"], shown["after"]) == (installation.ORIGINALS[installation.WORKER], A)
    assert release(steps=2, patches=[patch(sglang, A)])[1]["changed"] is False
    back = release("restored")[1]
    assert back["patched"] == [{"path": target, "restored": True}]
    assert sglang.read() == installation.ORIGINALS


@pytest.fixture
def warned(monkeypatch):
    """What modules warn of."""
    found = []
    monkeypatch.setattr(sglang_release.AnsibleModule, "warn", lambda self, warning, **_options: found.append(warning))
    return found


def test_who_shares_the_installation_is_warned_of(release, sglang, warned):
    release(steps=2, instance="other", port=30001)
    assert warned == []
    release(steps=2, patches=[patch(sglang, A)])
    (warning,) = warned
    assert "changes for other too" in warning and "/usr/bin/python3" in warning
    warned.clear()
    release(steps=3, instance="other", port=30001)
    (warning,) = warned
    assert "stays patched, as main wants it, and other" in warning
    warned.clear()
    release(steps=3, instance="third", port=30002, command=["/elsewhere/python3"])
    assert warned == []


def test_a_patch_that_another_server_wants_otherwise(release, sglang, paths):
    release(steps=2, patches=[patch(sglang, A)])
    before = everything(paths)
    code, result = release(steps=2, instance="other", patches=[patch(sglang, "worker = 'b'\n")])
    assert code == 1 and "patched otherwise for main" in result["msg"]
    assert everything(paths) == before


def test_an_upgraded_package_is_left_alone_and_told_of(release, sglang, warned):
    release(steps=2, patches=[patch(sglang, A)])
    sglang.reinstall(eagle_worker_v2="newer")
    code, result = release(steps=2)
    assert (code, result["patched"]) == (0, []) and "stays as it is" in warned[0]
    assert sglang.path(installation.WORKER).read_text() == "newer"


def test_another_run_on_the_same_host_is_waited_for(release, paths, monkeypatch):
    release(steps=2)
    monkeypatch.setattr(sglang_release, "_LOCK_TIMEOUT", 0.0)
    with locked(paths.base_dir.parent, 1.0):
        code, result = release(steps=3)
        assert code == 1 and "another run has been writing there" in result["msg"]
        assert release(steps=3, check=True)[0] == 0
    assert release(steps=3)[0] == 0


# -- what is recorded


def test_a_change_is_recorded_once_and_without_secrets(release, tmp_path):
    path = tmp_path / "audit" / "audit.jsonl"
    _code, result = release(audit_path=str(path), **SECRETS)
    release(audit_path=str(path), **SECRETS)
    release("proven", audit_path=str(path))
    rows = recorded(path)
    assert [(row["evidence"]["why"], row["outcome"]) for row in rows] == [
        ("present", "begun"),
        ("present", "written"),
        ("proven", "begun"),
        ("proven", "written"),
    ]
    assert {row["target"]["release"] for row in rows} == {result["release"]["id"]}
    assert "s3cr3t" not in path.read_text()


def test_check_mode_records_nothing(release, tmp_path):
    release(check=True, audit_path=str(tmp_path / "audit" / "audit.jsonl"))
    assert not (tmp_path / "audit").exists()


def test_a_log_that_is_refused_is_a_warning_and_the_work_is_done(release, paths, tmp_path):
    (tmp_path / "audit.jsonl").symlink_to("elsewhere")
    code, result = release(audit_path=str(tmp_path / "audit.jsonl"))
    assert code == 0 and paths.unit_file.exists()
    assert len(result["warnings"]) == 1
    assert "not recorded in %s" % (tmp_path / "audit.jsonl") in str(result["warnings"])


def test_a_path_that_is_none_is_refused_before_anything_is_written(release, paths):
    code, result = release(audit_path="audit.jsonl")
    assert code == 1 and result["msg"].startswith("audit_path: 'audit.jsonl' is not an absolute path")
    assert not paths.unit_file.exists()
