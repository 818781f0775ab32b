# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The structures that cross the library's interface have the layout that nvidia-ml-py expects."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pynvml
import pytest

NVML = Path(__file__).resolve().parents[1] / "nvml"

STRUCTURES = {
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_v2_t,
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
}
if hasattr(pynvml, "c_nvmlGpuFabricInfo_v2_t"):  # since nvidia-ml-py 12.545
    STRUCTURES["nvmlGpuFabricInfo_v2_t"] = pynvml.c_nvmlGpuFabricInfo_v2_t


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Size and member offsets of every structure, as the C compiler sees them."""
    lines = []
    for name, structure in STRUCTURES.items():
        members = [member for member, _type in structure._fields_]
        offsets = "".join(", (int)offsetof({}, {})".format(name, member) for member in members)
        lines.append('printf("{0} %d{1}\\n", (int)sizeof({0}){2});'.format(name, " %d" * len(members), offsets))
    folder = tmp_path_factory.mktemp("abi")
    source = (
        '#include <stddef.h>\n#include <stdio.h>\n#include "nvml_types.h"\nint main(void) {\n'
        + "\n".join(lines)
        + "\nreturn 0;\n}\n"
    )
    (folder / "layout.c").write_text(source)
    subprocess.run(["gcc", "-I", str(NVML), "-o", str(folder / "layout"), str(folder / "layout.c")], check=True)
    output = subprocess.run([str(folder / "layout")], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in output.splitlines())


@pytest.mark.parametrize("name", STRUCTURES)
def test_layout(layout: dict[str, str], name: str) -> None:
    structure = STRUCTURES[name]
    offsets = [getattr(structure, member).offset for member, _type in structure._fields_]
    assert layout[name] == " ".join(map(str, [ctypes.sizeof(structure), *offsets]))


def test_version_of_memory_v2() -> None:
    assert pynvml.nvmlMemory_v2 == 0x02000028
