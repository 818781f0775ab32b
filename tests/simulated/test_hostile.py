# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that mean harm to whoever looks at them, and users who may not look at all."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from .gpu_processes import as_nobody
from .results import actions, warnings
from .waiting import is_alive, wait_until

NAME = "py\x1b]0;owned\x07\x1b[2J\n{{ lookup('pipe', 'id') }}\u202e"
# A /proc that shows to nobody but root what runs, for the module alone.
HIDDEN = ["unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]


def texts(value):
    """All texts in a result."""
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def interpreter(folder, name):
    """A Python whose own file is called so."""
    folder.mkdir(exist_ok=True)
    return shutil.copy(os.path.realpath("/usr/bin/python3"), folder / name)


def test_a_process_with_a_name_that_acts_is_told_in_words_that_do_not(gpu_host, tmp_path):
    evil = gpu_host.hold(0, 9000, executable=interpreter(tmp_path / "bin", NAME))
    # Many kilobytes, as the kernel lets anybody have for a command line.
    long = gpu_host.hold(1, 9000, executable="/usr/bin/python3", env={"X": "\x1b[2J" * 20_000})
    looked = gpu_host.module("gpu_info")
    planned = gpu_host.module("gpu_reclaim", check=True)
    waited = gpu_host.module("gpu_wait_free", timeout=0.2, stable_for=0.1)
    ended = gpu_host.module("gpu_reclaim", grace=5)
    assert waited["failed"] and not ended.get("failed"), ended
    for result in (looked, planned, waited, ended):
        told = [text for text in texts(result) if not text.replace("\n", "").isprintable()]
        assert not told, told
        assert "lookup" in json.dumps(result)
    names = {holder["pid"]: holder["name"] for holder in looked["holders"]}
    assert names[evil["pid"]].startswith("py\\x1b]0;owned\\x07\\x1b[2J\\n{{") and long["pid"] in names
    wait_until(lambda: not is_alive(evil["pid"]) and not is_alive(long["pid"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_process_is_not_spared_for_the_name_of_its_own_file(gpu_host, tmp_path):
    installed, own = (interpreter(tmp_path / name, "nvidia-persistenced") for name in ("usr", "home"))
    os.chown(own, 65534, 65534)
    daemon, impostor = gpu_host.hold(0, 64, executable=installed), gpu_host.hold(1, 9000, executable=own)
    result = gpu_host.module("gpu_reclaim", gpus=["0", "1"], grace=5)
    found = actions(result)
    assert found[daemon["pid"]] == "protected" and found[impostor["pid"]] in ("terminated", "killed")
    assert is_alive(daemon["pid"])


def test_without_root_what_is_not_seen_is_said(gpu_host):
    launcher = as_nobody(gpu_host)
    held = gpu_host.hold(0, 9000)
    result = gpu_host.module("gpu_info", **launcher)
    assert result["gpus"][0]["verdict"] == "busy" and result["gpus"][1]["verdict"] == "free"
    assert result["uninspected"] > 0 and "become: true" in warnings(result)
    refused = gpu_host.module("gpu_reclaim", gpus=["0"], **launcher)
    assert refused["failed"] and refused["processes"][0]["action"] == "unresolved"
    assert is_alive(held["pid"])


def test_where_processes_of_others_do_not_show_that_is_said(gpu_host):
    launcher = as_nobody(gpu_host)
    launcher["launcher"] = [*HIDDEN, *launcher["launcher"]]
    held = gpu_host.hold(0, 9000)
    result = gpu_host.module("gpu_info", **launcher)
    assert result["gpus"][0]["verdict"] == "busy" and "hidepid" in result["gpus"][0]["message"]
    assert result["uninspected"] >= 1 and "hidepid" in warnings(result)
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], timeout=0.2, stable_for=0.1, **launcher)
    assert waited["failed"] and waited["gpus"][0]["verdict"] == "busy"
    refused = gpu_host.module("gpu_reclaim", gpus=["0"], **launcher)
    assert refused["failed"] and is_alive(held["pid"])
    assert "hidepid" in refused["processes"][0]["why"]
