# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import PynvmlMissing, load_pynvml


def test_the_real_binding_is_accepted():
    pynvml = pytest.importorskip("pynvml")
    assert load_pynvml() is pynvml


def test_a_missing_binding_carries_its_traceback():
    def importer(_name):
        raise ImportError("No module named 'pynvml'")

    with pytest.raises(PynvmlMissing) as stop:
        load_pynvml(importer)
    assert "No module named 'pynvml'" in stop.value.trace


def old_memory_info(handle):
    """As in nvidia-ml-py3."""


@pytest.mark.parametrize(
    "names",
    [{}, {"nvmlDeviceGetMemoryInfo": old_memory_info}, {"nvmlDeviceGetMemoryInfo": 5}],
)
def test_an_unfit_binding_is_named_with_its_place(names):
    fake = SimpleNamespace(__file__="/usr/lib/python3/dist-packages/pynvml.py", **names)
    with pytest.raises(GpuError) as stop:
        load_pynvml(lambda _name: fake)
    assert stop.value.failure.code == "unfit_pynvml"
    assert "/usr/lib/python3/dist-packages/pynvml.py" in str(stop.value)
    assert "nvidia-ml-py" in stop.value.failure.remedy
