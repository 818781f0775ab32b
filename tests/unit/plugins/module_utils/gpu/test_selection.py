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


@pytest.mark.parametrize(
    ("count", "expected", "message"),
    [
        (1, 8, "expected_count is 8 and the driver has 1 GPU"),
        (9, 8, "expected_count is 8 and the driver has 9 GPUs"),
        (0, 8, "expected_count is 8 and the driver has 0 GPUs"),
        (0, None, "The driver has no GPU"),
        (0, 0, "The driver has no GPU"),
    ],
)
def test_a_wrong_number_of_gpus_is_no_passing_failure(count, expected, message):
    with pytest.raises(GpuError) as stop:
        check_count(count, expected)
    failure = stop.value.failure
    assert (failure.code, failure.message, failure.permanent) == ("count", message, True)
    assert failure.remedy


def test_a_wrong_selection_is_no_passing_failure():
    for selectors in (["9"], ["0", "0"], ["MIG-cccc"]):
        with pytest.raises(SelectionError) as stop:
            resolve(selectors, DEVICES)
        failure = stop.value.failure
        assert (failure.code, failure.permanent) == ("selection", True)
        assert failure.message and failure.remedy.startswith("Name ")


def test_the_table_of_what_there_is():
    with pytest.raises(SelectionError) as stop:
        resolve(["9"], [DEVICES[0], DEVICES[3], GpuReading(4)])
    assert stop.value.failure.message == "'9' in gpus is no GPU of this host"
    assert stop.value.failure.remedy == (
        "Name one of: 0 = GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e at 00000000:00:06.0; "
        "3 (not identified: lost); 4 (not identified: unknown)"
    )


@pytest.mark.parametrize(
    ("selector", "message", "remedy"),
    [
        (
            "MIG-aaaa",
            "'MIG-aaaa' in gpus fits the MIG instances MIG-aaaa1111-0, MIG-aaaa2222-0",
            "Name one of: MIG-aaaa1111-0 on GPU 0; MIG-aaaa2222-0 on GPU 0; MIG-bbbb0000-0 on GPU 1",
        ),
        (
            "MIG-b",
            "'MIG-b' in gpus is no MIG instance of this host",
            "Name one of: MIG-aaaa1111-0 on GPU 0; MIG-aaaa2222-0 on GPU 0; MIG-bbbb0000-0 on GPU 1",
        ),
    ],
)
def test_the_table_of_instances(selector, message, remedy):
    with pytest.raises(SelectionError) as stop:
        resolve([selector], MIG)
    assert (stop.value.failure.message, stop.value.failure.remedy) == (message, remedy)


def test_a_host_without_instances_says_so():
    with pytest.raises(SelectionError) as stop:
        resolve(["MIG-aaaa1111-0"], DEVICES)
    assert stop.value.failure.remedy == "Name one of: (there are none)"


def test_twice_says_which_gpu():
    with pytest.raises(SelectionError, match="gpus names GPU 1 twice, as '1' and as 'ffbc5'"):
        resolve(["0", "1", "ffbc5"], DEVICES)


def test_a_whole_name_goes_before_the_beginning_of_another():
    devices = [gpu(0, "GPU-abcd", "00000000:01:00.0"), gpu(1, "GPU-abcdef", "00000000:02:00.0")]
    assert resolve(["abcd"], devices) == (Target(0),)
    parts = (MigDevice("MIG-abcd1111", 1, 0), MigDevice("MIG-abcd1111-2", 2, 0))
    split = [GpuReading(0, identity=devices[0].identity, mig_devices=parts)]
    assert resolve([" MIG-ABCD1111 "], split) == (Target(0, "MIG-abcd1111"),)


def test_a_gpu_without_identity_is_found_by_its_index_alone():
    nameless = [GpuReading(0), gpu(1, "GPU-abcdef", "00000000:02:00.0")]
    assert resolve(["02:00", "0"], nameless) == (Target(0), Target(1))
    for selector in ("", "GPU-", "01:00"):
        with pytest.raises(SelectionError):
            resolve([selector], nameless)


def test_everything_is_in_order_however_it_was_read():
    assert resolve([], DEVICES[::-1]) == tuple(Target(index) for index in range(4))
    assert resolve(["2", "0"], DEVICES[::-1]) == (Target(0), Target(2))


@pytest.mark.parametrize(
    ("selector", "index"),
    [
        ("0000:00:06.0", 0),
        ("00:06", 0),
        ("0000:00:06", 0),
        ("0000:01:06.0", 1),
        ("0000:00:07.0", 2),
        ("0000:00:06.3", 3),
    ],
)
def test_each_part_of_a_pci_address_counts(selector, index):
    addresses = ("00000000:00:06.0", "00000000:01:06.0", "00000000:00:07.0", "00000000:00:06.3", "0000000A:00:06.0")
    devices = [gpu(number, "GPU-%08x" % number, address) for number, address in enumerate(addresses)]
    assert resolve([selector], devices) == (Target(index),)
    assert resolve(["000a:00:06.0"], devices) == (Target(4),)
    assert resolve(["00:1f"], [*devices, gpu(5, "GPU-5", "00000000:00:1F.0")]) == (Target(5),)
