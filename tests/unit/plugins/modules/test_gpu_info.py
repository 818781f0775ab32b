# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib
import os

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.modules import gpu_reclaim, gpu_wait_free
from ansible_collections.inferops.sglang.plugins.modules import gpu_info
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeSession,
    listed,
    reading,
    uuid,
)

ALL = pytest.mark.parametrize("module", [gpu_info, gpu_reclaim, gpu_wait_free])
LOST = Failure("lost", "The GPU has fallen off the bus", "Reset it", True)


@pytest.fixture
def use(monkeypatch):
    """Put a fake session where modules get theirs from."""

    def put(session, module=gpu_info):
        def opened(timeout, procfs, reader):
            session.timeout = timeout
            if isinstance(session, Exception):
                raise session
            return session

        monkeypatch.setattr(module, "open_session", opened)
        return session

    return put


def mixed(index):
    if index == 1:
        return reading(1, failure=LOST, memory=None)
    return reading(index, used=5000 if index == 0 else 0, processes=[listed(os.getpid(), 4000)] if index == 0 else [])


def test_the_whole_host(use, run_module):
    session = use(FakeSession(mixed, count=3))
    code, result = run_module(gpu_info, {"nvml_timeout": 3})
    assert (code, result["changed"]) == (0, False)
    assert (result["driver_version"], result["nvml_version"]) == ("580.159.04", "13.580.159.04")
    assert result["selected"] == [uuid(0), uuid(1), uuid(2)]
    assert [(g["index"], g["verdict"], g["reason"]) for g in result["gpus"]] == [
        (0, "busy", "holder"),
        (1, "unknown", "lost"),
        (2, "free", ""),
    ]
    assert result["gpus"][0]["memory_used_mib"] == 5000
    assert result["gpus"][1]["memory_used_mib"] is None
    (holder,) = result["holders"]
    assert (holder["pid"], holder["gpus"], holder["memory_mib"]) == (os.getpid(), [uuid(0)], 4000)
    assert holder["protected_by"] == "this task itself"
    assert "msg" not in result
    assert session.timeout == 3.0
    assert session.closed


def test_a_selection_and_a_limit_of_ones_own(use, run_module):
    use(FakeSession(lambda index: reading(index, used=300), count=4))
    _code, result = run_module(gpu_info, {"gpus": ["3", uuid(1)[:14]], "max_used_mib": 300})
    assert [(g["index"], g["verdict"]) for g in result["gpus"]] == [(1, "free"), (3, "free")]
    _code, result = run_module(gpu_info, {"gpus": ["3"], "max_used_mib": 299})
    assert result["gpus"][0]["reason"] == "unattributed"


def test_check_mode_is_the_same(use, run_module):
    use(FakeSession(mixed, count=3))
    assert run_module(gpu_info, {}, check=True)[1]["gpus"] == run_module(gpu_info, {})[1]["gpus"]


def test_a_gpu_that_needs_more_than_its_processes_ended_is_warned_about(use, run_module, monkeypatch):
    warned = []
    monkeypatch.setattr(gpu_info.AnsibleModule, "warn", lambda _self, text, **_kw: warned.append(text))
    use(FakeSession(lambda index: reading(index, recovery_action="node_reboot" if index else "none")))
    run_module(gpu_info, {})
    assert len(warned) == 1
    assert "GPU 1" in warned[0]
    assert "rebooted" in warned[0]


def test_no_secret_of_a_command_line_is_shown(use, run_module, monkeypatch):
    use(FakeSession(mixed, count=1))
    _code, result = run_module(gpu_info, {})
    assert set(result["holders"][0]) == set(documented(gpu_info)["holders"]["contains"])


@ALL
def test_a_missing_library_names_the_package_and_the_interpreter(use, run_module, module):
    use(PynvmlMissing("Traceback: No module named pynvml"), module)
    code, result = run_module(module, {})
    assert code == 1
    assert "nvidia-ml-py" in result["msg"]
    assert "Python" in result["msg"]
    assert result["reason"] == "pynvml_missing"


@ALL
def test_nvml_that_cannot_be_used_is_told_with_its_reason(use, run_module, module):
    use(GpuError(Failure("library_mismatch", "They differ", "Reboot", True)), module)
    code, result = run_module(module, {})
    assert (code, result["reason"], result["msg"]) == (1, "library_mismatch", "They differ. Reboot.")


@ALL
@pytest.mark.parametrize("check", [False, True])
def test_a_wrong_count_fails_everywhere(use, run_module, module, check):
    session = use(FakeSession(reading, count=7), module)
    code, result = run_module(module, {"expected_count": 8}, check=check)
    assert (code, result["reason"]) == (1, "count")
    assert "7 GPUs" in result["msg"]
    assert session.closed


@ALL
def test_a_gpu_that_is_not_there_fails_everywhere(use, run_module, module):
    use(FakeSession(reading, count=2), module)
    code, result = run_module(module, {"gpus": ["5"]})
    assert (code, result["reason"]) == (1, "selection")
    assert uuid(1) in result["msg"]


@ALL
@pytest.mark.parametrize("check", [False, True])
def test_bad_values_fail_before_nvml_is_touched(run_module, module, monkeypatch, check):
    monkeypatch.setattr(module, "open_session", lambda *_args: pytest.fail("opened"))
    code, result = run_module(module, {"nvml_timeout": 0}, check=check)
    assert (code, result["reason"]) == (1, "option")
    assert "nvml_timeout" in result["msg"]


# -- what is documented is what is returned


def documented(module):
    name = module.__name__.rpartition(".")[2]
    return yaml.safe_load(importlib.import_module("ansible_collections.inferops.sglang.plugins.modules." + name).RETURN)


@ALL
def test_every_documented_key_says_when_and_what(module):
    def check(entries):
        for name, entry in entries.items():
            assert entry["returned"] and entry["type"] and "sample" in entry, name
            check(entry.get("contains", {}))

    check(documented(module))


@ALL
def test_every_returned_key_is_documented(use, run_module, module):
    use(FakeSession(mixed, count=3), module)
    args = {"gpus": ["0", "2"]}
    if module is gpu_wait_free:
        args.update(timeout=1, stable_for=0.1)
    _code, result = run_module(module, args, check=True)
    result.pop("invocation", None)  # ansible-core before 2.21
    described = documented(module)
    assert set(result) - {"changed", "failed", "msg", "diff", "warnings"} == set(described) - {"reason"}
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and "contains" in described[name]:
            assert set(value[0]) == set(described[name]["contains"]), name
