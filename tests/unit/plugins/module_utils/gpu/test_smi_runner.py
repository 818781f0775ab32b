# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real processes in the place of nvidia-smi."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import smi_runner
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_runner import Hung, NvidiaSmi, find_nvidia_smi
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import gone

TIMEOUT = 10.0
# Long enough for a shell to start where others have the processors.
SHORT = 1.0


@pytest.fixture
def script(tmp_path):
    """Make an executable of a few lines of shell."""

    def make(text):
        path = tmp_path / "nvidia-smi"
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)
        return NvidiaSmi(str(path))

    return make


def test_what_it_says_and_how_it_ends(script):
    got = script('echo "$1-$2"; echo problem >&2; exit 15').ask(["-q", "-x"], TIMEOUT)
    assert (got.status, got.output, got.errors) == (15, b"-q--x\n", b"problem\n")
    assert got.words.splitlines() == ["-q--x", "", "problem"]
    assert script("kill -11 $$").ask([], TIMEOUT).status == -signal.SIGSEGV


def test_much_output_on_both_sides_does_not_block(script):
    got = script("head -c 3000000 /dev/zero & head -c 2000000 /dev/zero >&2; wait").ask([], TIMEOUT)
    assert (len(got.output), len(got.errors)) == (3000000, 2000000)


def test_endless_output_is_cut_off(script, monkeypatch):
    monkeypatch.setattr(smi_runner, "_MOST_OUTPUT", 1 << 20)
    began = time.monotonic()
    with pytest.raises(GpuError) as stop:
        script("exec cat /dev/zero").ask([], TIMEOUT)
    assert stop.value.failure.code == "nvidia_smi_output"
    assert time.monotonic() - began < TIMEOUT / 2


@pytest.mark.parametrize(
    "text",
    [
        "exec sleep 60",
        "echo '<nvidia_smi_log>'; exec sleep 60",
        "trap '' TERM INT HUP; while :; do sleep 1; done",
        "exec >&- 2>&-; exec sleep 60",
        "sleep 60 & wait",
        "sleep 60 & exit 0",
    ],
)
def test_one_that_does_not_end_is_ended(script, tmp_path, text):
    before = os.listdir("/proc/self/fd")
    began = time.monotonic()
    with pytest.raises(Hung) as stop:
        script('echo $$ > "%s/pid"\n%s' % (tmp_path, text)).ask([], SHORT)
    assert time.monotonic() - began < SHORT + 1.0
    assert stop.value.leftover is None
    assert gone(int((tmp_path / "pid").read_text()))
    assert os.listdir("/proc/self/fd") == before


def test_one_that_cannot_be_killed_is_left_behind(script, monkeypatch):
    killed = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append((group, number)))  # as in the driver
    began = time.monotonic()
    with pytest.raises(Hung) as stop:
        script("exec sleep 60").ask([], SHORT)
    assert time.monotonic() - began < SHORT + 1.0
    left = stop.value.leftover
    assert killed == [(left.pid, signal.SIGKILL)]
    assert left.gone() is False
    monkeypatch.undo()
    os.kill(left.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while not left.gone():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert gone(left.pid)


def test_one_left_behind_does_not_keep_the_tasks_output_open(script, tmp_path):
    script("exec sleep 20")
    program = (
        "import os, sys\n"
        "from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_runner import Hung, NvidiaSmi\n"
        "os.killpg = lambda group, number: None\n"
        "try:\n    NvidiaSmi(sys.argv[1]).ask([], 0.2)\n"
        "except Hung as exc:\n    print(exc.leftover.pid)\n"
    )
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "nvidia-smi")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=15,
        check=False,
    )
    assert time.monotonic() - began < 10  # both outputs were closed before the sleep was over
    os.kill(int(run.stdout), signal.SIGKILL)


def test_its_environment(script, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/driver")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    said = script('echo "$LC_ALL,$LD_LIBRARY_PATH,${CUDA_VISIBLE_DEVICES-unset}"').ask([], TIMEOUT).words
    assert said == "C,/opt/driver,unset"


def test_it_reads_nothing_from_the_task(script):
    assert script("cat; echo end").ask([], TIMEOUT).output == b"end\n"


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(GpuError) as stop:
        NvidiaSmi(str(tmp_path / "nothing")).ask([], TIMEOUT)
    assert stop.value.failure.code == "nvidia_smi_missing"
    (tmp_path / "text").write_text("x")
    with pytest.raises(GpuError) as stop:
        NvidiaSmi(str(tmp_path / "text")).ask([], TIMEOUT)
    assert stop.value.failure.code == "nvidia_smi_missing"
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(GpuError) as stop:
        NvidiaSmi(str(tmp_path / "text")).ask([], TIMEOUT)
    assert stop.value.failure.code == "no_process"


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(smi_runner, "_FOLDERS", (str(tmp_path / "usual"),))
    with pytest.raises(GpuError) as stop:
        find_nvidia_smi(str(tmp_path))
    assert (stop.value.failure.code, stop.value.failure.permanent) == ("nvidia_smi_missing", True)
    for folder in ("usual", "first"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "nvidia-smi").write_text("")
        (tmp_path / folder / "nvidia-smi").chmod(0o755)
    assert find_nvidia_smi(str(tmp_path)) == str(tmp_path / "usual" / "nvidia-smi")
    assert find_nvidia_smi(str(tmp_path / "first")) == str(tmp_path / "first" / "nvidia-smi")
    monkeypatch.setenv("PATH", str(tmp_path / "first"))
    assert find_nvidia_smi() == str(tmp_path / "first" / "nvidia-smi")
