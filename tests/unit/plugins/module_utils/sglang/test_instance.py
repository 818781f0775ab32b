# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstanceError, InstancePaths


@pytest.mark.parametrize("name", ["main", "a", "0", "llama-3_70b", "a" * 48])
def test_accepts_names(name):
    assert InstancePaths(name).unit_name == f"sglang-{name}.service"


@pytest.mark.parametrize("name", ["", "Main", "-a", "_a", "a/b", "..", "a b", "a\n", "a" * 49, "ä", "a@b", "a."])
def test_refuses_other_names(name):
    with pytest.raises(InstanceError, match=r"instance: .* is not a name"):
        InstancePaths(name)


@pytest.mark.parametrize("option", ["state_dir", "run_dir", "log_dir", "etc_dir", "unit_dir"])
def test_refuses_relative_folders_by_the_name_of_the_option(option):
    with pytest.raises(InstanceError, match=f"^{option}: 'var/x'"):
        InstancePaths("main", **{option: "var/x"})


def test_paths():
    paths = InstancePaths("main", "/s", "/r", "/l", "/e", "/u")
    assert {name: str(getattr(paths, name)) for name in dir(type(paths)) if isinstance(getattr(paths, name), Path)} == {
        "base_dir": "/s/main",
        "releases_dir": "/s/main/releases",
        "current_link": "/s/main/current",
        "last_good_link": "/s/main/last_good",
        "current_since_file": "/s/main/current_since.json",
        "pid_file": "/r/main.json",
        "log_file": "/l/main.log",
        "instance_etc_dir": "/e/main",
        "environment_file": "/e/main/environment",
        "secret_args_file": "/e/main/secrets.yaml",
        "unit_file": "/u/sglang-main.service",
    }
