# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.session_memory import KnownGpus, Silences
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import FakeClock, identity, reading

HUNG = Failure("hung", "No answer", "Wait")


def test_an_index_means_the_gpu_that_it_meant_first():
    known = KnownGpus()
    assert known.get(0) is None
    assert known.same(reading(0)) == reading(0)
    other = dataclasses.replace(reading(0), identity=dataclasses.replace(identity(0), uuid="GPU-other"))
    refused = known.same(other)
    assert (refused.failure.code, refused.failure.permanent, refused.memory) == ("identity_changed", True, None)
    assert refused.identity == identity(0)


def test_a_reading_without_identity_is_that_of_the_known_gpu():
    known = KnownGpus()
    known.same(reading(0))
    assert known.same(GpuReading(0, failure=HUNG)).identity == identity(0)
    assert known.failed(0, HUNG) == GpuReading(0, identity=identity(0), failure=HUNG)
    assert known.failed(1, HUNG).identity is None


def test_what_does_not_answer_is_left_alone_for_longer_each_time():
    clock = FakeClock()
    silences = Silences(clock.monotonic)
    silences.begin("gpu", HUNG)
    assert silences.about("gpu") == HUNG
    assert silences.about("other") is None
    clock.sleep(31)
    assert silences.about("gpu") is None
    silences.begin("gpu", HUNG)
    clock.sleep(31)
    assert silences.about("gpu") == HUNG
    silences.end("gpu")
    silences.begin("gpu", HUNG)
    clock.sleep(31)
    assert silences.about("gpu") is None
