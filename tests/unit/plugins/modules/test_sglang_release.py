# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.modules import sglang_release


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


def test_every_returned_key_is_documented(release):
    documented = yaml.safe_load(sglang_release.RETURN)
    result = release()[1]
    assert set(result) - {"changed", "invocation", "warnings", "deprecations"} == set(documented)
    assert set(result["release"]) == set(documented["release"]["contains"])


def test_every_option_is_documented():
    documented = set(yaml.safe_load(sglang_release.DOCUMENTATION)["options"]) | {"instance", "state_dir", "manager"}
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
