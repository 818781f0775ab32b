# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which reader is taken, and what is said where none can be."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import (
    nvml_session,
    open,
    smi_runner,
    smi_session,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

MISSING = PynvmlMissing("trace")
UNFIT = GpuError(Failure("unfit_pynvml", "The module pynvml is another one", "Install nvidia-ml-py", True))
NO_TOOL = GpuError(Failure("nvidia_smi_missing", "nvidia-smi is not installed", "Install it", True))
BROKEN_TOOL = GpuError(Failure("library_mismatch", "nvidia-smi cannot be used", "Reboot", True))


@pytest.fixture
def host(monkeypatch):
    """A host with a binding and a tool; either may be an error to raise instead."""

    def make(binding, tool):
        def give(thing):
            if isinstance(thing, Exception):
                raise thing
            return thing

        monkeypatch.setattr(open, "load_pynvml", lambda: give(binding))
        monkeypatch.setattr(smi_runner, "find_nvidia_smi", lambda: give(tool))
        monkeypatch.setattr(smi_runner, "NvidiaSmi", lambda path: ("tool", path))
        monkeypatch.setattr(smi_session, "SmiSession", lambda tool, *rest: ("smi", tool, *rest))
        monkeypatch.setattr(nvml_session, "NvmlSession", lambda _make_reader, timeout: ("nvml", timeout))
        return ProcFs()

    return make


SMI = ("smi", ("tool", "/usr/bin/nvidia-smi"), 5.0, ProcFs().pid_max())


@pytest.mark.parametrize(
    ("reader", "binding", "tool", "session"),
    [
        ("auto", "pynvml", "/usr/bin/nvidia-smi", ("nvml", 5.0)),
        ("auto", "pynvml", NO_TOOL, ("nvml", 5.0)),
        ("auto", MISSING, "/usr/bin/nvidia-smi", SMI),
        ("auto", UNFIT, "/usr/bin/nvidia-smi", SMI),
        ("nvml", "pynvml", "/usr/bin/nvidia-smi", ("nvml", 5.0)),
        ("nvidia_smi", "pynvml", "/usr/bin/nvidia-smi", SMI),
        ("nvidia_smi", MISSING, "/usr/bin/nvidia-smi", SMI),
    ],
)
def test_which_reader_is_taken(host, reader, binding, tool, session):
    assert open.open_session(5.0, host(binding, tool), reader) == session


@pytest.mark.parametrize(
    ("reader", "binding", "tool", "error"),
    [
        ("nvml", MISSING, "/usr/bin/nvidia-smi", MISSING),
        ("nvml", UNFIT, "/usr/bin/nvidia-smi", UNFIT),
        ("nvidia_smi", "pynvml", NO_TOOL, NO_TOOL),
        # What is wrong with the binding can be put right; that the tool is not there either says less.
        ("auto", UNFIT, NO_TOOL, UNFIT),
        # A tool that is there and fails knows more about the driver than a binding that is not there.
        ("auto", MISSING, BROKEN_TOOL, BROKEN_TOOL),
        ("auto", UNFIT, BROKEN_TOOL, BROKEN_TOOL),
    ],
)
def test_what_is_said_where_none_can_be_taken(host, reader, binding, tool, error):
    with pytest.raises(type(error)) as stop:
        open.open_session(5.0, host(binding, tool), reader)
    assert stop.value is error


def test_a_host_with_neither_is_told_what_to_install(host):
    with pytest.raises(GpuError) as stop:
        open.open_session(5.0, host(MISSING, NO_TOOL))
    failure = stop.value.failure
    assert (failure.code, failure.permanent) == ("reader_missing", True)
    for word in ("pynvml", "nvidia-ml-py", "nvidia-smi"):
        assert word in failure.message
    assert failure.remedy.startswith("Install nvidia-ml-py ")
