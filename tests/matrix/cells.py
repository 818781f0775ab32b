# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cells of the matrix: which tests run on which Python, ansible-core and nvidia-ml-py.

Everything here is a list or a choice from it; what is there on a machine is found out elsewhere.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from typing import Collection, List, Sequence, Tuple

Version = Tuple[int, int]

# Which release this is only pip can say.
NEWEST = "newest"
OLDEST = "oldest"

# Pythons of the hosts: the oldest that the modules support, to the newest that an ansible-core release supports.
TARGET_PYTHONS: Sequence[Version] = tuple((3, minor) for minor in range(8, 15))


@dataclass(frozen=True)
class CoreLine:
    """A line of ansible-core releases, such as 2.19, and the first and last Python that each half of it supports."""

    name: str
    controller: Tuple[Version, Version]
    target: Tuple[Version, Version]


CORE_LINES = (
    CoreLine("2.18", controller=((3, 11), (3, 13)), target=((3, 8), (3, 13))),
    CoreLine("2.19", controller=((3, 11), (3, 13)), target=((3, 8), (3, 13))),
    CoreLine("2.20", controller=((3, 12), (3, 14)), target=((3, 9), (3, 14))),
    CoreLine("2.21", controller=((3, 12), (3, 14)), target=((3, 9), (3, 14))),
)
# The newest line takes whatever Python pip says it takes; these are tried, the newest that is there first.
CONTROLLER_PYTHONS: Sequence[Version] = tuple((3, minor) for minor in range(11, 15))

TARGET_TESTS = ("tests/unit/plugins/module_utils", "tests/unit/plugins/modules")
PLUGIN_TESTS = tuple(f"tests/unit/plugins/{folder}" for folder in ("action", "connection", "filter", "plugin_utils"))
# What of them needs nothing of ansible-core.
PURE_TESTS = frozenset(["tests/unit/plugins/plugin_utils"])
# Modules with the whole of ansible-core beside them, as where a controller is a host of its own.
CONTROLLER_TESTS = (*PLUGIN_TESTS, "tests/unit/plugins/modules")
# Modules on real processes with simulated GPUs.
GPU_PROCESS_TESTS = ("tests/simulated/test_gpu_modules.py",)
PROCESS_TESTS = (
    *GPU_PROCESS_TESTS,
    "tests/simulated/test_wait_cases.py",
    "tests/simulated/test_nvidia_smi_reader.py",
    "tests/simulated/test_sglang_modules.py",
)
# What the ends leave out, as it takes most of the time: dozens of servers and parsers, and one module run up to each of
# its steps.
SLOW_TESTS = (
    *(
        f"tests/unit/plugins/modules/test_sglang_{name}.py"
        for name in ("preflight", "process", "release_killed", "wait_ready")
    ),
    "tests/unit/plugins/module_utils/sglang/configuration/test_parser_probe.py",
    "tests/unit/plugins/module_utils/sglang/patches/test_store.py",
    "tests/unit/plugins/module_utils/sglang/releases/test_store.py",
)
# A new Python breaks what asks the system and what ansible-core hands over, where `make unit` has an older one for all.
NEWEST_TESTS = ("tests/unit/plugins/module_utils/system", "tests/unit/plugins/modules")
# A star stands for the rest of a file's name, as in a shell.
BINDING_TESTS = ("tests/unit/plugins/module_utils/gpu/test_nvml*.py", *GPU_PROCESS_TESTS)
SCENARIO = "restart_eagle3"

TARGET, CONTROLLER, PLAY, BINDING = "target", "controller", "play", "binding"


@dataclass(frozen=True)
class Cell:
    """One combination.

    pythons are tried in this order, and the first that the machine has is taken. core is a line of ansible-core,
    binding (nvidia-ml-py) is OLDEST or NEWEST. tests are paths below the root of the sources, and without are files
    among them that are left out.
    """

    name: str
    kind: str
    pythons: Tuple[Version, ...]
    core: str
    binding: str = NEWEST
    tests: Tuple[str, ...] = ()
    without: Tuple[str, ...] = ()


def text(version: Version) -> str:
    """A version as people write it: 3.8."""
    return "{}.{}".format(*version)


def oldest_first(first: Version, last: Version) -> Tuple[Version, ...]:
    """All Pythons from the first to the last."""
    return tuple((3, minor) for minor in range(first[1], last[1] + 1))


def target_lines(python: Version) -> List[str]:
    """The oldest and the newest line of ansible-core whose modules run on this Python."""
    known = [line for line in CORE_LINES if line.target[0] <= python <= line.target[1]]
    # The newest line drops old Pythons and not new ones, so what the last known line supports is asked of it.
    newest = NEWEST if CORE_LINES[-1] in known else known[-1].name
    return [known[0].name, newest]


def target_cell(python: Version, core: str, tests: Tuple[str, ...]) -> Cell:
    """Modules and what they are made of, on a host's Python, with what ansible-core sends along."""
    # Where ansible-core is the oldest, so is the binding.
    binding = OLDEST if core == target_lines(python)[0] else NEWEST
    return Cell(f"target-{text(python)}-core-{core}", TARGET, (python,), core, binding, tests)


def controller_cells() -> List[Cell]:
    """Each line on the oldest Python that it supports and the machine has; the newest on the newest."""
    cells = [
        Cell(f"controller-{line.name}", CONTROLLER, oldest_first(*line.controller), line.name, tests=CONTROLLER_TESTS)
        for line in CORE_LINES
    ]
    newest_first = tuple(reversed(CONTROLLER_PYTHONS))
    return [*cells, Cell(f"controller-{NEWEST}", CONTROLLER, newest_first, NEWEST, tests=CONTROLLER_TESTS)]


def play_cells() -> List[Cell]:
    """The restart over ssh, from each controller."""
    return [
        Cell(f"restart-{cell.core}", PLAY, cell.pythons, cell.core, tests=(f"extensions/molecule/{SCENARIO}",))
        for cell in controller_cells()
    ]


def binding_cells() -> List[Cell]:
    """The reader of NVML with each end of nvidia-ml-py, all else being equal."""
    return [
        Cell(f"nvidia-ml-py-{end}", BINDING, tuple(CONTROLLER_PYTHONS), "2.19", end, BINDING_TESTS)
        for end in (OLDEST, NEWEST)
    ]


def everything() -> List[Cell]:
    """All cells."""
    targets = [
        target_cell(python, core, (*TARGET_TESTS, *PROCESS_TESTS))
        for python in TARGET_PYTHONS
        for core in target_lines(python)
    ]
    return [*targets, *controller_cells(), *binding_cells(), *play_cells()]


def ends(present: Collection[Version]) -> List[Cell]:
    """The outermost cells, for a machine with these Pythons: the oldest and the newest of everything at once.

    A Python that is missing at an end is among them, so that its absence is told, and then the next one is taken. What
    `make unit` and `make simulated` run anyway, with the versions in between or the newest binding, is left out.
    """
    oldest = [
        target_cell(python, target_lines(python)[0], (*TARGET_TESTS, *GPU_PROCESS_TESTS))
        for python in until_present(TARGET_PYTHONS, present)
    ]
    newest = [
        target_cell(python, target_lines(python)[-1], NEWEST_TESTS)
        for python in until_present(tuple(reversed(TARGET_PYTHONS)), present)
    ]
    targets = [replace(cell, without=SLOW_TESTS) for cell in (*oldest, *newest)]
    plugins = tuple(path for path in PLUGIN_TESTS if path not in PURE_TESTS)
    controllers = [replace(cell, tests=plugins) for cell in controller_cells()]
    return [*targets, controllers[0], controllers[-1]]


def oldest(present: Collection[Version]) -> List[Cell]:
    """Of the ends only the oldest Python of a host, with the oldest of everything, and what runs whole modules."""
    cells = [cell for cell in ends(present) if cell.kind == TARGET and cell.core == CORE_LINES[0].name]
    return [replace(cell, tests=(*NEWEST_TESTS, *GPU_PROCESS_TESTS)) for cell in cells]


def until_present(pythons: Sequence[Version], present: Collection[Version]) -> List[Version]:
    """The first of them that is there, after those before it that are not."""
    taken = []
    for python in pythons:
        taken.append(python)
        if python in present:
            break
    return taken


def chosen(cells: Sequence[Cell], patterns: Sequence[str]) -> List[Cell]:
    """The cells whose names match one of the patterns (as in a shell, or a part of the name); all without one."""
    return [
        cell
        for cell in cells
        if not patterns or any(pattern in cell.name or fnmatch.fnmatch(cell.name, pattern) for pattern in patterns)
    ]
