# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples: Ansible reads them, and every variable in them is known to this collection and has a fitting value."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculative_options import (
    KNOWN_OPTIONS,
    OWN_OPTIONS,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_inventory import SETTINGS
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import merge_settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
INVENTORIES = sorted(path.parent.name for path in EXAMPLES.glob("*/hosts.yml"))
ROLES = ("gpu_free", "sglang_deploy", "sglang_stop")
# It chooses the hosts, so the inventory is too late for it.
ONLY_BY_HAND = {"sglang_hosts"}
OF_THE_PLAYBOOKS = {"sglang_report_path", *SETTINGS}
SPECULATIVE = {"profile", "profiles", *OWN_OPTIONS, *KNOWN_OPTIONS}
BUILT_IN_PROFILES = {"baseline", "eagle3"}
TEMPLATE = "{{"


def load(path):
    """Read a YAML file of the collection."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def known_variables():
    """The specification of every variable that may stand in an inventory: those of roles, and their short names."""
    known = {}
    for role in ROLES:
        options = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        for name, default in load(f"roles/{role}/defaults/main.yml").items():
            spec = {word: options[name][word] for word in ("type", "elements", "choices") if word in options[name]}
            known[name] = spec
            short = re.match(r"\{\{ (sglang_\w+) \| default\(", default) if isinstance(default, str) else None
            if short:
                known.setdefault(short.group(1), spec)
    return known


KNOWN = known_variables()


def command(*words, config=EXAMPLES / "ansible.cfg"):
    """Run one of Ansible's commands as in the folder of the examples; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "ansible", *map(str, words)],
        env=dict(os.environ, ANSIBLE_CONFIG=str(config), ANSIBLE_NOCOLOR="1"),
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr and "ERROR" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def inventory():
    """What ansible-inventory makes of an example, each read once."""
    read = {}

    def inventory(name):
        if name not in read:
            read[name] = json.loads(command("inventory", "-i", EXAMPLES / name / "hosts.yml", "--list"))
        return read[name]

    return inventory


def wrong(variables):
    """Say of each variable that is not known, or whose value does not fit, what is wrong with it."""
    for name, value in variables.items():
        if name in ONLY_BY_HAND:
            yield f"{name} has no effect in an inventory"
        elif name.startswith("sglang_spec_") and name != "sglang_spec_profiles":
            if name[len("sglang_spec_") :] not in SPECULATIVE:
                yield f"{name} is no setting of speculation"
        elif name in OF_THE_PLAYBOOKS or not name.startswith(("sglang_", "gpu_free_")):
            continue
        elif name not in KNOWN:
            yield f"{name} is not known"
        elif TEMPLATE not in json.dumps(value):
            yield from ArgumentSpecValidator({name: KNOWN[name]}).validate({name: value}).error_messages


@pytest.mark.parametrize("name", INVENTORIES)
def test_variables_are_known_and_fit(inventory, name):
    hosts = inventory(name)["_meta"]["hostvars"]
    assert hosts
    for host, variables in hosts.items():
        assert list(wrong(variables)) == [], host


@pytest.mark.parametrize("name", INVENTORIES)
def test_every_server_can_be_told_from_the_others(inventory, name):
    hosts = inventory(name)["_meta"]["hostvars"].items()
    servers = {host: variables for host, variables in hosts if "sglang_model_path" in variables}
    assert servers
    places = [
        (host_vars.get("ansible_host", host), host_vars.get("ansible_pct_vmid"), host_vars.get("sglang_port", 30000))
        for host, host_vars in servers.items()
    ]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("name", INVENTORIES)
def test_profiles_can_be_chosen(inventory, name):
    for variables in inventory(name)["_meta"]["hostvars"].values():
        profiles = variables.get("sglang_spec_profiles", {})
        settings = {
            "speculative": {
                option: variables[f"sglang_spec_{option}"]
                for option in OWN_OPTIONS
                if f"sglang_spec_{option}" in variables
            },
            "max_running_requests": variables.get("sglang_max_running_requests"),
            "environment": variables.get("sglang_environment", {}),
            "extra_args": variables.get("sglang_extra_args", []),
        }
        for profile in {*profiles, *BUILT_IN_PROFILES, variables.get("sglang_spec_profile", "")}:
            # Refuses what contradicts the profile.
            merge_settings(settings, profile, profiles)


def test_the_wrong_ones_would_be_noticed():
    variables = {
        "sglang_portt": 1,
        "sglang_port": "many",
        "sglang_manager": "upstart",
        "sglang_spec_steps": 3,
        "sglang_hosts": "all",
        "gpu_free_allow_users": {"alice": 1},
        "sglang_tp_size": 8,
        "ansible_host": "192.0.2.10",
    }
    problems = " ".join(wrong(variables))
    for name in (
        "sglang_portt",
        "sglang_port",
        "upstart",
        "sglang_spec_steps",
        "sglang_hosts",
        "gpu_free_allow_users",
    ):
        assert name in problems
    assert len(list(wrong(variables))) == 6


def test_commands_name_what_there_is(inventory):
    texts = {path: path.read_text(encoding="utf-8") for path in EXAMPLES.rglob("*") if path.suffix in (".md", ".yml")}
    named = set()
    for path, text in texts.items():
        # A command may go on in a second line of a comment.
        for line in re.sub(r"\\\n#? *", "", text).splitlines():
            used = re.search(r"ansible\S* -i (\S+)/hosts\.yml", line)
            if not used:
                continue
            name = used.group(1)
            assert name in INVENTORIES, f"{path}: {line}"
            named.add(name)
            playbook = re.search(r" inferops\.sglang\.(\w+)", line)
            assert not playbook or (ROOT / "playbooks" / f"{playbook.group(1)}.yml").is_file(), line
            groups = inventory(name)
            hosts = groups["_meta"]["hostvars"]
            for chosen in re.findall(r"(?:--limit |-e sglang_hosts=)(\S+)", line):
                assert chosen in groups or chosen in hosts, line
            profiles = {profile for host in hosts.values() for profile in host.get("sglang_spec_profiles", {})}
            for profile in re.findall(r"-e sglang_spec_profile=(\S+)", line):
                assert profile in profiles | BUILT_IN_PROFILES, line
    assert named == set(INVENTORIES)


def test_the_configuration_is_one_that_ansible_knows():
    command("config", "validate", "-t", "all")


def test_the_key_is_used_from_an_encrypted_file(tmp_path):
    fleet = shutil.copytree(EXAMPLES / "fleet", tmp_path / "fleet")
    vault = shutil.copy(fleet / "vault.example.yml", fleet / "group_vars/gpu_hosts/vault.yml")
    (tmp_path / "password").write_text("a password\n")
    password = ("--vault-password-file", tmp_path / "password")
    command("vault", "encrypt", *password, vault)
    assert pathlib.Path(vault).read_text().startswith("$ANSIBLE_VAULT;1.1;AES256")
    listing = json.loads(command("inventory", "-i", fleet / "hosts.yml", *password, "--host", "gpu-h100-02"))
    assert listing["sglang_api_key"] == "{{ vault_sglang_api_key }}"
    assert listing["vault_sglang_api_key"] == load("examples/fleet/vault.example.yml")["vault_sglang_api_key"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_units_of_the_guard_are_ones_that_systemd_takes(tmp_path):
    """examples/guard/sglang-guard.service and examples/guard/sglang-guard.timer, as docs/adaptive.md installs them."""
    units = [tmp_path / name for name in ("sglang-guard.service", "sglang-guard.timer")]
    for unit in units:
        text = (EXAMPLES / "guard" / unit.name).read_text(encoding="utf-8")
        # The reader's own environment, which is not here.
        unit.write_text(text.replace("/srv/inference/venv/bin/ansible-playbook", shutil.which("true")))
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, units)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_service_of_the_guard_runs_a_playbook_that_there_is():
    text = (EXAMPLES / "guard" / "sglang-guard.service").read_text(encoding="utf-8")
    (playbook,) = re.findall(r"^ExecStart=.* inferops\.sglang\.(\w+)", text, re.MULTILINE)
    content = (ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8")
    for name in re.findall(r"-e (\w+)=", text):
        assert name in content
