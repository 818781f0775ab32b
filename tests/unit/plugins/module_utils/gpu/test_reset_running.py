# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of nvidia-smi, and what they mean."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_plan import Command
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_running import judge, names_of, reset
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock

BUSES = {"GPU-a": "00000000:1A:00.0", "GPU-b": "00000000:1B:00.0"}
BOTH = Command(("GPU-a", "GPU-b"))
OK = "GPU 00000000:1A:00.0 was successfully reset.\nGPU 00000000:1B:00.0 was successfully reset.\nAll done.\n"
HALF = (
    "GPU 00000000:1A:00.0 was successfully reset.\n"
    "The following GPUs could not be reset:\n  GPU 00000000:1B:00.0: %s\n\n"
    "1 device is currently being used by one or more other processes.\n"
)
NONE = "The following GPUs could not be reset:\n  GPU 00000000:1A:00.0: %s\n  GPU 00000000:1B:00.0: %s\n"


@pytest.mark.parametrize(
    ("completed", "outcome", "done", "words"),
    [
        (Completed(0, out=OK), "done", ("GPU-a", "GPU-b"), ""),
        (Completed(0, out="All done.\n"), "done", ("GPU-a", "GPU-b"), ""),
        # The status alone proves nothing.
        (Completed(0, out=NONE % ("Unknown Error", "Unknown Error")), "reset_failed", (), "Unknown Error"),
        (Completed(0, out="  GPU 00000000:1B:00.0: Unknown Error\n"), "reset_failed", (), "Unknown Error"),
        (Completed(255, out=HALF % "In use by another client"), "in_use", ("GPU-a",), "1B:00.0: In use by another"),
        (Completed(255, out=NONE % ("Unknown Error", "x")), "reset_failed", (), "Unknown Error"),
        (Completed(3, out=NONE % ("Not Supported", "Not Supported")), "not_supported", (), "Not Supported"),
        (Completed(4, err="Unable to reset: Insufficient Permissions"), "no_permission", (), "Insufficient"),
        (Completed(15, out="GPU is lost"), "lost", (), "lost"),
        (Completed(255, out=""), "reset_failed", (), "255"),
        (Completed(None, out="GPU 1A:00.0 was successfully reset.", timed_out=True), "hung", ("GPU-a",), "within 9 s"),
        (Completed(127, err="there is no program", missing=True), "nvidia_smi_missing", (), "no program"),
    ],
)
def test_judge(completed, outcome, done, words):
    judged = judge(completed, BOTH, BUSES, 9.0)
    assert (judged.code, judged.done) == (outcome, done) and words in judged.message


def test_missing_peers_are_named():
    text = (
        "GPU 00000000:1A:00.0 is linked by NVLink to 0000:2C:00.0 and 00000000:1B:00.0, which must be reset with it\n"
    )
    judged = judge(Completed(255, out=text), BOTH, BUSES, 9.0)
    assert (judged.code, judged.missing) == ("nvlink_peers", ("00000000:2c:00.0",))


def test_what_it_prints_cannot_steer_a_terminal_and_is_not_endless():
    judged = judge(Completed(255, err="\x1b[2J" + "x" * 5000), BOTH, BUSES, 9.0)
    assert "\x1b" not in judged.message and len(judged.message) <= 400


class Tool:
    """Answers in turn."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    def __call__(self, arguments, timeout):
        self.calls.append((" ".join(arguments), timeout))
        return self.answers.pop(0)


def run(tool, *commands, ready=lambda: True):
    clock = FakeClock()
    attempts = reset(commands, BUSES, tool, 9.0, ready, clock, clock.sleep)
    return [(attempt.number, attempt.outcome) for attempt in attempts], clock.now


def test_once_where_it_works():
    tool = Tool(Completed(0, out=OK))
    assert run(tool, BOTH) == ([(1, "done")], 0.0)
    assert tool.calls == [("--gpu-reset -i GPU-a,GPU-b", 9.0)]


def test_the_second_try_is_about_what_is_left_and_the_last():
    busy = Completed(255, out=HALF % "In use by another client")
    tool = Tool(busy, Completed(255, out="  GPU 00000000:1B:00.0: In use by another client\n"))
    outcomes, waited = run(tool, BOTH)
    assert outcomes == [(1, "in_use"), (2, "in_use")] and waited > 0
    assert [line for line, _limit in tool.calls] == ["--gpu-reset -i GPU-a,GPU-b", "--gpu-reset -i GPU-b"]


@pytest.mark.parametrize(
    "answer",
    [
        Completed(3, out=NONE % ("Not Supported", "x")),
        Completed(None, timed_out=True),
        Completed(4, err="Insufficient Permissions"),
        Completed(255, out="GPU 1A:00.0: NVLink peers"),
        Completed(15, err="GPU is lost"),
    ],
)
def test_what_stays_as_it_is_is_tried_once(answer):
    assert len(run(Tool(answer), BOTH)[0]) == 1


def test_after_a_failure_no_further_command_is_run():
    tool = Tool(Completed(3, out="GPU 1A:00.0: Not Supported"))
    run(tool, Command(("GPU-a",)), Command(("GPU-b",), bus=True))
    assert len(tool.calls) == 1
    tool = Tool(Completed(0), Completed(0))
    run(tool, Command(("GPU-a",)), Command(("GPU-b",), bus=True))
    assert [line for line, _limit in tool.calls] == ["--gpu-reset -i GPU-a", "-r bus -i GPU-b"]


def test_a_task_that_is_told_to_end_begins_nothing_new():
    answers = iter([True, False])
    tool = Tool(Completed(255, out="Unknown Error"))
    assert run(tool, BOTH, ready=lambda: next(answers))[0] == [(1, "reset_failed")]
    assert run(Tool(), BOTH, ready=lambda: False)[0] == []


def test_names():
    assert names_of(frozenset(["GPU-b", "GPU-a"]), BUSES) == "GPU-a (00000000:1A:00.0), GPU-b (00000000:1B:00.0)"
