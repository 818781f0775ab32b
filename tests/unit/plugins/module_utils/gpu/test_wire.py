# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import wire
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuReading
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import listed, reading


@pytest.mark.parametrize(
    "value",
    [
        reading(3, used=7, processes=[listed(5, None, gpu_instance=1), listed(6, kind="mps")]),
        GpuReading(1, failure=Failure("lost", "Gone", "Reset it", True)),
    ],
)
def test_a_reading_survives_the_journey(value):
    line = wire.pack(wire.reading_to_dict(value))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert wire.reading_from_dict(wire.unpack(line)) == value


@pytest.mark.parametrize("line", [b"", b"[]\n", b"nonsense\n", b'{"a": \n', b"\xff\xfe\n"])
def test_nonsense_is_refused(line):
    with pytest.raises(ValueError):
        wire.unpack(line)
