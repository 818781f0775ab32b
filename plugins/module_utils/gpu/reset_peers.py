# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs have to be reset by one command, and what that takes of the fabric manager.  Pure.

GPUs whose NVLinks lead to each other are reset alone from Ampere on; older ones all together.  Behind
NVSwitches, Hopper and later are reset alone, Ampere only while the fabric manager runs, and all
together otherwise; older ones always together.

Source: nvidia-smi(1), --gpu-reset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterable, Mapping, Set

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits

_ALONE_BEHIND_SWITCHES = "hopper"
_ALONE = "ampere"
_WITHOUT_NVLINK = "ada"


@dataclass(frozen=True)
class Links:
    """All GPUs of the host, by index: traits, and PCI bus ids in the spelling of `reset_traits.bus_id`."""

    traits: Mapping[int, GpuTraits]
    buses: Mapping[int, str]
    fabric_manager_runs: bool

    def alone(self, index: int) -> bool:
        """Whether a GPU may be reset without the GPUs that it is linked to, whichever these are."""
        traits = self._of(index)
        if not traits.older_than(_ALONE_BEHIND_SWITCHES) or traits.architecture == _WITHOUT_NVLINK:
            return True
        if traits.older_than(_ALONE):
            return False
        return self.fabric_manager_runs or (traits.links_read and not traits.switched)

    def together_with(self, indices: Iterable[int]) -> FrozenSet[int]:
        """These GPUs, and all that have to be reset by the same command."""
        found: Set[int] = set()
        todo = sorted(set(indices))
        while todo:
            index = todo.pop()
            if index not in found:
                found.add(index)
                todo.extend(self._linked(index) - found)
        return frozenset(found)

    def unknown_of(self, indices: Iterable[int]) -> FrozenSet[int]:
        """Those of these GPUs that may have to be reset with others, and do not say which.

        Links that are down say nothing either; where no GPU of the host has a link that is up, there is
        no bridge and no switch.
        """
        any_up = any(traits.peers or traits.switched for traits in self.traits.values())
        return frozenset(
            index
            for index in indices
            if not self.alone(index) and (not self._of(index).links_read or (self._of(index).down > 0 and any_up))
        )

    def behind_switches(self) -> FrozenSet[int]:
        """All GPUs that the fabric manager looks after."""
        return frozenset(index for index, traits in self.traits.items() if traits.switched)

    def _linked(self, index: int) -> FrozenSet[int]:
        if self.alone(index):
            return frozenset()
        traits = self._of(index)
        ends = set(traits.peers)
        linked = {other for other, bus in self.buses.items() if bus in ends}
        if traits.switched:
            linked |= self.behind_switches()
        # A link has two ends, and a sick GPU may not tell of its own.
        linked |= {other for other, far in self.traits.items() if self.buses.get(index, "") in far.peers}
        return frozenset(linked - {index})

    def _of(self, index: int) -> GpuTraits:
        return self.traits.get(index, GpuTraits(index))
