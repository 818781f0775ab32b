# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sglang_info through its real main(): its options, and hosts on which nothing runs."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.modules import sglang_info

RELEASE = "20261130T104500Z-5d41402a"


@pytest.fixture
def look(run_module, tmp_path):
    """Run the module in folders of its own; (exit status, result)."""
    folders = {name: str(tmp_path / name) for name in ("state_dir", "run_dir", "log_dir")}

    def run(check=False, **options):
        return run_module(sglang_info, {**folders, **options}, check=check)

    return run


def deploy(root, name="main"):
    folder = root / "state_dir" / name / "releases" / RELEASE
    folder.mkdir(parents=True)
    release = Release(RELEASE, "2026-11-30T10:45:00Z", name, "process", ["python"], port=31000)
    (folder / "release.json").write_text(release.to_json())
    (folder.parents[1] / "current").symlink_to(folder)


@pytest.mark.parametrize("check", [False, True])
def test_a_host_without_instances(look, check):
    status, result = look(check)
    assert (status, result["changed"], result["servers"]) == (0, False, [])


def test_instances_that_are_stopped(look, tmp_path):
    deploy(tmp_path)
    deploy(tmp_path, "second")
    status, result = look()
    assert status == 0 and result["changed"] is False
    assert [(server["instance"], server["state"]) for server in result["servers"]] == [
        ("main", "stopped"),
        ("second", "stopped"),
    ]
    status, result = look(instances=["second", "third", "second"])
    assert [(server["instance"], server["reason"]) for server in result["servers"]] == [
        ("second", ""),
        ("third", "not_deployed"),
    ]


def test_every_key_is_documented(look, tmp_path):
    deploy(tmp_path)
    (server,) = look()[1]["servers"]
    documented = yaml.safe_load(sglang_info.RETURN)["servers"]["contains"]
    assert sorted(server) == sorted(documented)
    assert sorted(server["load"]) == sorted(documented["load"]["contains"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, ["timeout: 0.0", "more than 0"]),
        ({"timeout": float("inf")}, ["timeout: inf"]),
        ({"load_window": -1}, ["load_window: -1.0", "0 to 600 seconds"]),
        ({"load_window": "nan"}, ["load_window: nan"]),
        ({"rank_zero": "gpu-a"}, ["rank_zero: 'gpu-a'", "HOST:PORT"]),
        ({"instances": ["Main"]}, ["instances: 'Main'", "lower-case"]),
        ({"instances": [], "state_dir": "/\n"}, []),
        ({"state_dir": "/dev/null"}, ["state_dir: /dev/null cannot be read", "become"]),
        ({"run_dir": "a\nb"}, ["run_dir:", "absolute path"]),
    ],
)
def test_options_that_cannot_be(look, options, words):
    status, result = look(**options)
    assert (status != 0) == bool(words)
    assert all(word in result["msg"] for word in words)
