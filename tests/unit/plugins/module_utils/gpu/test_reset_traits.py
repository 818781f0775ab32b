# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decides how a GPU may be reset, as the binding answers it."""

from __future__ import annotations

import ctypes
import time
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors, reset_traits
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import GpuReader
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits, TraitsReader
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_parser import SmiGpu
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import FakePynvml, NVMLError


class FabricInfo(ctypes.Structure):
    _fields_ = [("state", ctypes.c_ubyte), ("status", ctypes.c_int)]


def read(pynvml=None, **answers):
    """Ask a binding that answers by table; what has no answer is not supported."""

    def ask(name, *arguments):
        answer = answers.get(name, NVMLError(3))
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return TraitsReader(ask, nvml_errors.nvml_code, pynvml or SimpleNamespace()).read(0, "handle")


def links(*ends):
    """Answers of a GPU with links to these ends: a bus id, "switch", "down" (says nothing) or "mute" (is up)."""

    def end(link):
        return ends[link] if link < len(ends) else None

    def state(_handle, link):
        return NVMLError(2) if end(link) is None else int(end(link) != "down")

    def kind(_handle, link):
        return NVMLError(3) if end(link) in ("down", "mute") else 2 if end(link) == "switch" else 0

    def remote(_handle, link):
        return NVMLError(3) if end(link) in ("down", "mute") else SimpleNamespace(busId=end(link).encode())

    return {
        "nvmlDeviceGetNvLinkState": state,
        "nvmlDeviceGetNvLinkRemoteDeviceType": kind,
        "nvmlDeviceGetNvLinkRemotePciInfo": remote,
    }


@pytest.mark.parametrize(
    ("architecture", "capability", "expected"),
    [
        (7, (9, 0), "ampere"),
        (9, NVMLError(3), "hopper"),
        (10, NVMLError(3), "blackwell"),
        (13, NVMLError(3), "newer"),
        (0xFFFFFFFF, (8, 0), "ampere"),
        (NVMLError(13), (7, 5), "turing"),
        (NVMLError(13), (8, 9), "ada"),
        (NVMLError(13), (12, 1), "blackwell"),
        (NVMLError(13), (14, 0), "newer"),
        (NVMLError(15), NVMLError(15), "unknown"),
    ],
)
def test_generation(architecture, capability, expected):
    traits = read(nvmlDeviceGetArchitecture=architecture, nvmlDeviceGetCudaComputeCapability=capability)
    assert traits.architecture == expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (
            ("0000:1A:00.0", "00000000:1A:00.0", "00000000:0B:00.0"),
            (("00000000:0b:00.0", "00000000:1a:00.0"), False, 0, True),
        ),
        (("switch", "switch"), ((), True, 0, True)),
        (("down", "00000000:0B:00.0"), (("00000000:0b:00.0",), False, 1, True)),
        (("switch", "mute"), ((), True, 0, False)),
    ],
)
def test_links(ends, expected):
    traits = read(**links(*ends))
    assert (traits.peers, traits.switched, traits.down, traits.links_read) == expected


@pytest.mark.parametrize(("code", "complete"), [(3, True), (13, True), (2, False), (15, False), (999, False)])
def test_a_gpu_without_links_says_so_and_one_that_fails_does_not(code, complete):
    traits = read(nvmlDeviceGetNvLinkState=NVMLError(code))
    assert (traits.peers, traits.switched, traits.links_read) == ((), False, complete)


@pytest.mark.parametrize(
    ("answer", "virtualization", "display"),
    [(0, "none", "disabled"), (1, "passthrough", "enabled"), (9, "unknown", "unknown")],
)
def test_words(answer, virtualization, display):
    traits = read(nvmlDeviceGetVirtualizationMode=answer, nvmlDeviceGetDisplayActive=answer)
    assert (traits.virtualization, traits.display) == (virtualization, display)


def test_words_that_cannot_be_read():
    traits = read(nvmlDeviceGetVirtualizationMode=NVMLError(999))
    assert (traits.virtualization, traits.display) == ("unknown", "disabled")


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [(0, 0, "not_supported"), (2, 0, "in_progress"), (3, 0, "completed"), (3, 999, "failed"), (9, 0, "unknown")],
)
def test_fabric(state, status, expected):
    def fill(_handle, reference):
        reference._obj.state, reference._obj.status = state, status

    binding = SimpleNamespace(c_nvmlGpuFabricInfo_v2_t=FabricInfo)
    assert read(binding, nvmlDeviceGetGpuFabricInfoV=fill).fabric == expected


def test_fabric_of_old_libraries_and_sick_gpus():
    binding = SimpleNamespace(c_nvmlGpuFabricInfo_v2_t=FabricInfo)
    assert read().fabric == read(binding).fabric == "not_supported"
    assert read(binding, nvmlDeviceGetGpuFabricInfoV=NVMLError(15)).fabric == "unknown"


def test_older_than():
    assert GpuTraits(0, "volta").older_than("ampere") and GpuTraits(0, "unknown").older_than("ampere")
    assert not GpuTraits(0, "ampere").older_than("ampere") and not GpuTraits(0, "newer").older_than("hopper")


def test_it_travels():
    traits = GpuTraits(3, "ampere", ("a", "b"), True, 1, True, "none", "disabled", "completed")
    assert reset_traits.traits_from_dict(reset_traits.traits_to_dict(traits)) == traits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:0B:00.0", "00000000:0b:00.0"),
        (b"00000000:0B:00.0", "00000000:0b:00.0"),
        ("0B:00.0", "00000000:0b:00.0"),
        ("x", "x"),
    ],
)
def test_bus_id(text, expected):
    assert reset_traits.bus_id(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Hopper", "hopper"), ("Ada Lovelace", "ada"), ("Rubin", "newer"), ("", "unknown"), ("N/A", "unknown")],
)
def test_architecture_named(text, expected):
    assert reset_traits.architecture_named(text) == expected


# ---- through the sessions


def test_the_reader_asks_about_a_gpu_that_it_can_open():
    reader = GpuReader(FakePynvml(nvmlDeviceGetCudaComputeCapability=(8, 0)), 99999)
    assert reset_traits.traits_from_dict(reader.traits(1)).architecture == "ampere"
    broken = GpuReader(FakePynvml(nvmlDeviceGetHandleByIndex=NVMLError(15)), 99999)
    assert broken.traits(1) == reset_traits.traits_to_dict(GpuTraits(1))


def test_a_session_asks_its_child_and_survives_one_that_hangs(childless):
    def capability(handle):
        if handle == 1:
            time.sleep(60)
        return (9, 0)

    binding = FakePynvml(nvmlDeviceGetCudaComputeCapability=capability)
    with NvmlSession(lambda: GpuReader(binding, 99999), 0.3) as session:
        assert [traits.architecture for traits in session.traits([0, 1, 0])] == ["hopper", "unknown", "hopper"]
    childless()


def test_nvidia_smi_does_not_tell_where_links_lead():
    element = ElementTree.fromstring(
        "<gpu><product_architecture>Ada Lovelace</product_architecture><display_active>Enabled</display_active>"
        "<gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode></gpu_virtualization_mode>"
        "<fabric><state>In Progress</state></fabric></gpu>"
    )
    assert SmiGpu(element).traits(2) == GpuTraits(
        2, "ada", virtualization="passthrough", display="enabled", fabric="in_progress"
    )
    assert SmiGpu(ElementTree.fromstring("<gpu/>")).traits(2).architecture == "unknown"
