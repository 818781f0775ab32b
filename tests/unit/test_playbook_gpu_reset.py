# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the playbook gpu_reset goes through a fleet: one refusal stops all before the first reset, and so does a canary.

The playbook is the real one, on a module that does nothing but what a host's `gpu_reset_gpus` says.  With a real module
on a real host it is run in extensions/molecule/gpu_reset.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]

STAND_IN = """#!/usr/bin/python
import pathlib

from ansible.module_utils.basic import AnsibleModule

OPTIONS = ("expected_count", "include_peers", "fabric_manager", "nvidia_drm", "in_guest", "stop_units", "keep_units")
OPTIONS += ("reset_timeout", "settle_timeout", "allocation_test")
module = AnsibleModule(
    argument_spec=dict(gpus=dict(type="list"), when=dict(), **{name: dict(type="raw") for name in OPTIONS}),
    supports_check_mode=True,
)
wish, host = module.params["gpus"]
result = dict(
    decisions=[dict(index=0, uuid="GPU-a")], plan=[], blockers=[], reboot_needed=[], drain_needed=[],
    command="" if wish == "nothing" else "nvidia-smi --gpu-reset -i GPU-a", resettable=["GPU-a"],
)
if wish in ("busy", "mig"):
    result["blockers"] = [dict(code=wish, message="It is %s." % wish, pid=None, instance="")]
if not module.check_mode:
    with open(module.params["when"], "a") as stream:
        stream.write(host + "\\n")
    result["resets"] = [dict(done=["GPU-a"])]
    if wish == "sick":
        module.fail_json(msg="it is not well", changed=True, **dict(result, reboot_needed=["GPU-a"]))
module.exit_json(changed=True, **result)
"""


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """This collection, with a module gpu_reset that does what it is told."""
    parent = tmp_path_factory.mktemp("collections")
    collection = parent / "ansible_collections" / "inferops" / "sglang"
    modules = collection / "plugins" / "modules"
    modules.mkdir(parents=True)
    for name in ("galaxy.yml", "meta", "playbooks", "roles"):
        (collection / name).symlink_to(ROOT / name)
    for path in (ROOT / "plugins").iterdir():
        if path.name != "modules":
            (collection / "plugins" / path.name).symlink_to(path)
    for path in (ROOT / "plugins/modules").glob("*.py"):
        (modules / path.name).symlink_to(path)
    (modules / "gpu_reset.py").unlink()
    (modules / "gpu_reset.py").write_text(STAND_IN)
    return parent


def run(collections, folder, hosts, *options):
    """Run it on hosts that become something: exit code, which hosts were reset in which order, and the output."""
    done = folder / "reset"
    inventory = {}
    for name, wish in hosts.items():
        inventory[name] = {"gpu_reset_gpus": [wish, name], "ansible_connection": "local"}
        if wish == "dark":
            inventory[name].update(ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=9)
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": inventory}}))
    words = [
        *(sys.executable, "-m", "ansible", "playbook", "-i", str(folder / "hosts.yml"), "inferops.sglang.gpu_reset"),
        *("-e", f"gpu_reset_when={done}", "-e", f"ansible_python_interpreter={sys.executable}", *options),
    ]
    environment = dict(
        os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_NOCOLOR="1", ANSIBLE_HOME=str(folder / "home")
    )
    finished = subprocess.run(
        words,
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return finished.returncode, done.read_text().split() if done.exists() else [], finished.stdout


CASES = {
    # hosts, exit code, reset in this order, what the table says of a host
    "all are reset": ({"a": "fine", "b": "nothing", "c": "fine"}, 0, ["a", "c"], {"a": "reset", "b": "nothing to do"}),
    "one is refused and one is out of reach": (
        {"a": "fine", "b": "mig", "c": "dark"},
        2,
        [],
        {"a": "would reset", "b": "refused", "c": "not reached"},
    ),
    "the canary is sick": ({"a": "sick", "b": "fine"}, 2, ["a"], {"a": "reboot needed"}),
}


@pytest.mark.also_on_hosts
@pytest.mark.parametrize("case", CASES)
def test_how_it_goes_through_the_hosts(collections, tmp_path, case):
    hosts, code, order, table = CASES[case]
    rc, done, output = run(collections, tmp_path, hosts)
    assert (rc, done) == (code, order), output
    for host, outcome in table.items():
        assert re.search(rf"\b{host} +│ {outcome}\b", output), output
    if "dark" in hosts.values():
        assert "--limit 'all:!c'" in output
    if code:
        assert re.search(r"It is mig|it is not well", output)


def test_every_play_stops_at_the_first_failure():
    plays = yaml.safe_load((ROOT / "playbooks/gpu_reset.yml").read_text())
    assert [play["max_fail_percentage"] for play in plays] == [0, 0]
    assert "serial" not in plays[0] and "[1, '100%']" in plays[1]["serial"]
