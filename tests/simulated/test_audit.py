# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host remembers of a whole restart, and of a run that is killed in the middle."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from .conftest import RUNNER
from .server import EAGLE3
from .waiting import wait_until

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the default file is root's")


def audit(host):
    path = host.folder / "audit" / "audit.jsonl"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


@ROOT
def test_a_restart_is_told_from_its_first_file_to_its_last_signal(server, host):
    server.go(secret_args={"api-key": "sk-s3cr3t-1"}, **EAGLE3)
    server.prove()
    release = server.results[-1]["release"]["id"]
    server.stop()
    rows = audit(host)
    ends = [(row["action"], row["outcome"]) for row in rows if row["outcome"] != "begun"]
    main = ends.index(("start", "started"))
    assert ends[:2] == [("configuration", "written"), ("start", "started")] and main == 1
    assert ends[2] == ("configuration", "written")  # it is proven
    assert ("signal", "terminated") in ends[3:] and ("stop", "stopped") in ends[3:]
    proven = [row for row in rows if row["evidence"].get("last_good")]
    assert {row["evidence"]["last_good"] for row in proven} == {release}
    # Each that was begun has come to an end, and none has a word of the key.
    assert {row["id"] for row in rows if row["outcome"] == "begun"} == {
        row["id"] for row in rows if row["outcome"] not in ("begun", "removed")
    }
    assert "s3cr3t" not in json.dumps(rows)


@ROOT
def test_a_run_that_is_killed_leaves_what_it_had_begun(host):
    held = host.hold(0, 1000, "--ignore-term")
    path = host.folder / "audit" / "audit.jsonl"
    run = subprocess.Popen(
        [sys.executable, RUNNER, "gpu_reclaim"], env=host.environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        run.stdin.write(json.dumps({"grace": 60, "_ansible_remote_tmp": str(host.folder)}).encode())
        run.stdin.close()
        wait_until(lambda: path.exists() and path.read_bytes().endswith(b"\n"))
    finally:
        run.kill()
        run.wait()
    (begun,) = audit(host)
    assert (begun["outcome"], begun["detail"], begun["target"]["pid"]) == ("begun", "SIGTERM", held["pid"])
    assert not host.module("gpu_reclaim", grace=0).get("failed")
    after = audit(host)[1:]
    assert [(row["outcome"], row["id"] == begun["id"]) for row in after] == [("begun", False), ("killed", False)]


@ROOT
def test_a_hostile_name_is_recorded_as_it_is_and_forges_nothing(host):
    name = 'x\n{"outcome":"done"}\x1b[2J'
    held = host.hold(0, 1000, "--title", name)
    result = host.module("gpu_reclaim", grace=5)
    assert not result.get("failed"), result
    begun, ended = audit(host)
    assert (begun["outcome"], ended["outcome"]) == ("begun", "terminated")
    assert begun["target"]["pid"] == ended["target"]["pid"] == held["pid"]
    assert ended["evidence"]["memory_mib"] == 1000
    assert ended["target"]["name"].startswith("x") and "done" in ended["target"]["name"]
