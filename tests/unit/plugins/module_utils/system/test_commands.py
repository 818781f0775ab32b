# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running programs with a limit: real ones, which behave well and badly."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import commands
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed, run


def python(code, timeout=10.0, **more):
    return run([sys.executable, "-S", "-c", code], timeout, **more)


def test_status_and_outputs():
    done = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert done == Completed(3, "out\n", "err\n")
    assert not done.ok
    assert done.reason == "err"


def test_input_goes_in_and_an_input_of_nobody_does_no_harm():
    assert python("import sys; print(sys.stdin.read().upper())", input="quit\n").out == "QUIT\n\n"
    assert python("import sys; sys.stdin.close()", input="x" * 1000000).ok
    assert python("import sys; print(repr(sys.stdin.read()))").out == "''\n"


def test_the_environment_is_added_to_and_untranslated():
    done = python("import os; print(os.environ['LC_ALL'], os.environ['X'], os.environ['PATH'])", env={"X": "1"})
    locale, added, path = done.out.split()
    assert (locale, added) == ("C", "1")
    assert "/usr/sbin" in path.split(":")


def test_an_environment_can_be_all_there_is():
    code = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))"  # which Python sets itself
    assert python(code, env={"X": "1"}, inherit=False).out == "['X']\n"
    assert python(code, inherit=False).out == "[]\n"


def test_a_signal_is_a_negative_status():
    assert python("import os; os.kill(os.getpid(), 15)").rc == -signal.SIGTERM


def test_a_missing_program_and_one_that_cannot_run(tmp_path):
    assert run(["no-such-program"], 1).missing
    plain = tmp_path / "plain"
    plain.write_text("x")
    done = run([str(plain)], 1)
    assert (done.rc, done.missing) == (126, False)
    assert "cannot be started" in done.err


def test_too_late_is_killed_with_its_children(tmp_path):
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(60)\n"
    )
    began = time.monotonic()
    done = python(code, timeout=0.5)
    assert time.monotonic() - began < 3
    assert (done.rc, done.timed_out) == (None, True)
    assert done.reason == "it did not answer in time"
    child = int(done.out)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open("/proc/%d/stat" % child) as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("the child lives on")


def test_a_grandchild_that_keeps_the_output_is_not_waited_for():
    code = (
        "import os, time\n"
        "print('done', flush=True)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "time.sleep(0.1)\n"
    )
    began = time.monotonic()
    done = python(code, timeout=30)
    assert time.monotonic() - began < 10
    word, grandchild = done.out.split()
    os.kill(int(grandchild), signal.SIGKILL)
    assert (done.rc, done.timed_out, word) == (0, False, "done")


def test_one_that_closed_its_outputs_is_still_bounded():
    began = time.monotonic()
    assert python("import os, time; os.close(1); os.close(2); time.sleep(60)", timeout=0.4).timed_out
    assert time.monotonic() - began < 3


def test_output_is_bounded(monkeypatch):
    monkeypatch.setattr(commands, "_MOST_OUTPUT", 1000)
    done = python("print('x' * 1000000)")
    assert done.ok
    assert done.out == "x" * 1000


def test_one_that_cannot_be_ended_is_left_behind(monkeypatch):
    """The signal does not reach it, as if it sat in an uninterruptible wait."""
    reached = []
    monkeypatch.setattr(commands.os, "killpg", lambda pid, number: reached.append(pid))
    monkeypatch.setattr(commands, "_REAP", 0.1)
    began = time.monotonic()
    done = python("import time; time.sleep(60)", timeout=0.2)
    assert time.monotonic() - began < 3
    assert done.timed_out
    os.kill(reached[0], signal.SIGKILL)
    os.waitpid(reached[0], 0)
