# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuError,
    GpuIdentity,
    GpuReading,
    MigDevice,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import (
    SelectionError,
    Target,
    check_count,
    names_instances,
    plain_targets,
    resolve,
)


def gpu(index, uuid, pci):
    return GpuReading(index, identity=GpuIdentity(index, uuid, pci, index, "Fake"))


DEVICES = (
    gpu(0, "GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e", "00000000:00:06.0"),
    gpu(1, "GPU-ffbc5c77-8c74-04ad-d8f7-b54cc55f3edb", "00000000:00:07.0"),
    gpu(2, "GPU-ffbc0000-8c74-04ad-d8f7-b54cc55f3edb", "00000001:3B:00.0"),
    GpuReading(3, failure=Failure("lost", "It is gone", "Reset it", True)),
)


@pytest.mark.parametrize(
    ("selector", "index"),
    [
        ("0", 0),
        (" 2 ", 2),
        ("3", 3),
        ("GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e", 0),
        ("gpu-DCF0D3FB-72ce-ab9c-dfbf-21c3a8854f5e", 0),
        ("dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e", 0),
        ("GPU-dcf0", 0),
        ("ffbc5", 1),
        ("FFBC0", 2),
        ("0000:00:06.0", 0),
        ("00000000:00:07.0", 1),
        ("00:07.0", 1),
        ("00:07", 1),
        ("0001:3b:00.0", 2),
        ("00000001:3B:00.0", 2),
    ],
)
def test_every_usual_spelling(selector, index):
    assert resolve([selector], DEVICES) == (Target(index),)


@pytest.mark.parametrize(
    "selector",
    ["4", "-1", "GPU-", "gpu-d", "dcf", "GPU-abcd", "00:08.0", "3b:00.0", "0000:00:06.1", "all", "1.0"],
)
def test_what_is_no_gpu_lists_those_there_are(selector):
    with pytest.raises(SelectionError) as stop:
        resolve([selector], DEVICES)
    message = str(stop.value)
    assert selector in message
    for device in DEVICES[:3]:
        assert device.uuid in message
        assert device.identity.pci_bus_id in message
    assert "3 (not identified: lost)" in message


def test_an_ambiguous_start_names_the_candidates():
    with pytest.raises(SelectionError, match=r"'ffbc' in gpus fits the GPUs 1, 2"):
        resolve(["ffbc"], DEVICES)


@pytest.mark.parametrize("pair", [["0", "0"], ["0", "GPU-dcf0"], ["00:07.0", "1"]])
def test_a_gpu_that_is_named_twice_is_a_mistake(pair):
    with pytest.raises(SelectionError) as stop:
        resolve(pair, DEVICES)
    assert "twice" in str(stop.value)
    assert repr(pair[0]) in str(stop.value)
    assert repr(pair[1]) in str(stop.value)


def test_nothing_selected_is_everything():
    assert resolve([], DEVICES) == tuple(Target(index) for index in range(4))


def test_cuda_visible_devices_changes_nothing(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert resolve(["0"], DEVICES) == (Target(0),)
    assert resolve([], DEVICES) == tuple(Target(index) for index in range(4))


@pytest.mark.parametrize(
    ("selectors", "count", "expected"),
    [
        ([], 3, (0, 1, 2)),
        (["2", "0"], 3, (0, 2)),
        (["3"], 3, None),
        (["0", "0"], 3, None),
        (["0", "GPU-abc"], 3, None),
        (["GPU-abc"], 3, None),
        (["-1"], 3, None),
        (["²"], 3, None),
    ],
)
def test_plain_targets(selectors, count, expected):
    found = plain_targets(selectors, count)
    assert (None if found is None else tuple(target.index for target in found)) == expected


def test_the_number_of_gpus():
    check_count(8, 8)
    check_count(8, None)
    with pytest.raises(GpuError, match="expected_count is 8 and the driver has 7 GPUs"):
        check_count(7, 8)
    with pytest.raises(GpuError):
        check_count(0, None)


MIG = (
    GpuReading(
        0,
        identity=DEVICES[0].identity,
        mig_devices=(MigDevice("MIG-aaaa1111-0", 1, 0), MigDevice("MIG-aaaa2222-0", 2, 0)),
    ),
    GpuReading(1, identity=DEVICES[1].identity, mig_devices=(MigDevice("MIG-bbbb0000-0", 1, 0), MigDevice("", 2, 0))),
)


@pytest.mark.parametrize(
    ("selectors", "found"),
    [
        (["MIG-aaaa1111-0"], [Target(0, "MIG-aaaa1111-0")]),
        (["mig-AAAA1", "MIG-aaaa2"], [Target(0, "MIG-aaaa1111-0"), Target(0, "MIG-aaaa2222-0")]),
        (["MIG-bbbb", "0"], [Target(0), Target(1, "MIG-bbbb0000-0")]),
    ],
)
def test_mig_instances(selectors, found):
    assert names_instances(selectors)
    assert resolve(selectors, MIG) == tuple(found)


@pytest.mark.parametrize("selectors", [["MIG-aaaa"], ["MIG-cccc"], ["MIG-"], ["MIG-b"]])
def test_what_is_no_single_mig_instance_lists_those_there_are(selectors):
    with pytest.raises(SelectionError) as stop:
        resolve(selectors, MIG)
    assert "MIG-aaaa1111-0" in str(stop.value)
    assert repr(selectors[0]) in str(stop.value)


@pytest.mark.parametrize("selectors", [["0", "MIG-aaaa1"], ["MIG-aaaa1", "0"], ["MIG-aaaa1", "mig-aaaa1111"]])
def test_a_gpu_and_an_instance_of_it_are_named_twice(selectors):
    with pytest.raises(SelectionError, match="twice"):
        resolve(selectors, MIG)


def test_without_a_mig_uuid_no_instances_are_asked_for():
    assert not names_instances(["0", "GPU-dcf0"])


spellings = st.sampled_from(
    [str(d.index) for d in DEVICES]
    + [d.uuid for d in DEVICES[:3]]
    + [d.uuid[4:14] for d in DEVICES[:3]]
    + [d.identity.pci_bus_id.lower() for d in DEVICES[:3]]
)


@given(st.lists(st.one_of(spellings, st.text(max_size=12)), min_size=1, max_size=4))
def test_a_selection_is_sorted_complete_and_within_the_host_or_an_error(selectors):
    try:
        found = resolve(selectors, DEVICES)
    except SelectionError:
        return
    assert list(found) == sorted(set(found))
    assert len(found) == len(selectors)
    assert {target.index for target in found} <= {0, 1, 2, 3}


@given(st.lists(st.text(alphabet="0123456789", max_size=3), max_size=4), st.integers(1, 8))
def test_the_short_cut_agrees_with_the_long_way(selectors, count):
    devices = [gpu(i, "GPU-%08x" % i, "00000000:%02x:00.0" % i) for i in range(count)]
    plain = plain_targets(selectors, count)
    if plain is not None:
        assert plain == resolve(selectors, devices)
