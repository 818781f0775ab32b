# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter as a playbook uses it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible.errors import AnsibleFilterError

import ansible_collections.inferops
from ansible_collections.inferops.sglang.plugins.filter import sglang_settings


def test_it_is_documented():
    documentation = yaml.safe_load(sglang_settings.DOCUMENTATION)
    assert documentation["name"] == "sglang_settings"
    assert documentation["positional"] == "profile, profiles, sweep_dir, sweep_concurrency"
    assert set(documentation["options"]) == {"_input", "profile", "profiles", "sweep_dir", "sweep_concurrency"}
    (example,) = yaml.safe_load(sglang_settings.EXAMPLES)
    merged = sglang_settings.sglang_settings(example["vars"]["settings"], "eagle3", example["vars"]["profiles"])
    assert merged["speculative"]["num_steps"] == 3 and merged["environment"] == {"NCCL_NVLS_ENABLE": "1"}
    for key in merged:
        assert f"C({key})" in yaml.safe_load(sglang_settings.RETURN)["_value"]["description"][0]


def test_errors_are_those_of_filters():
    with pytest.raises(AnsibleFilterError, match="no profile 'x'"):
        sglang_settings.sglang_settings({}, "x")
    with pytest.raises(AnsibleFilterError, match="needs a dictionary"):
        sglang_settings.sglang_settings("x")


def test_in_a_task(tmp_path):
    """Ansible hands over lazy dictionaries, whose values are templated when they are read."""
    variables = {
        "steps": 2,
        "settings": {"speculative": {"num_steps": "{{ steps }}", "draft_model_path": "/d"}, "max_running_requests": ""},
        "profiles": {"mine": {"algorithm": "EAGLE3", "environment": {"A": "{{ steps }}"}}},
    }
    (tmp_path / "vars.json").write_text(json.dumps(variables))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "adhoc", "localhost", "-m", "ansible.builtin.debug"]
        + ["-a", "msg={{ settings | inferops.sglang.sglang_settings('mine', profiles) | to_json }}"]
        + ["-e", f"@{tmp_path}/vars.json"],
        env=dict(
            os.environ,
            ANSIBLE_HOME=str(tmp_path / "home"),
            ANSIBLE_COLLECTIONS_PATH=str(pathlib.Path(ansible_collections.inferops.__path__[0]).parents[1]),
            ANSIBLE_LOCALHOST_WARNING="false",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    shown = json.loads(done.stdout[done.stdout.index("{") :])["msg"]
    merged = json.loads(shown) if isinstance(shown, str) else shown
    assert merged["profile"] == "mine"
    assert merged["speculative"] == {"algorithm": "EAGLE3", "num_steps": 2, "draft_model_path": "/d"}
    assert merged["environment"] == {"A": "2"}
