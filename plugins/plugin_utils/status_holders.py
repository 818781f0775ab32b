# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the GPUs of a host, put together by user, unit and container: pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_values import (
    mapping,
    mappings,
    short,
    text,
    texts,
    whole,
)

_MOST_HOLDERS = 1000
# GPUs of one holder, and names that a group shows.
_MOST_GPUS = 128
_MOST_NAMES = 8
# A process that does not end, one that is stopped, and one that has ended: worth a word.
_ODD_STATES = ("D", "T", "Z")


@dataclass(frozen=True)
class Holder:
    """One process that uses GPUs, as gpu_info returned it; memory is in MiB by UUID, None where it is not known."""

    pid: Optional[int]
    user: str
    unit: str
    container: str
    name: str
    state: str
    protected: bool
    memory_mib: Optional[int]
    uses: FrozenSet[str]
    per_gpu_mib: Mapping[str, Optional[int]]

    @property
    def group(self) -> Tuple[str, str, str, str]:
        """What it is put together by: in no unit and no container a process is a group of its own name."""
        return self.user, self.unit, self.container, "" if self.unit or self.container else self.name


def read_holders(result: Any) -> List[Holder]:
    """The processes that use a GPU; one that merely has it open is not among them."""
    found = [_holder(item) for item in mappings(result, _MOST_HOLDERS)]
    return [holder for holder in found if holder.uses]


def _holder(item: Mapping[str, Any]) -> Holder:
    memory = mapping(item.get("per_gpu_mib"))
    return Holder(
        pid=whole(item.get("pid")),
        user=text(item.get("user")) or "unknown user",
        unit=text(item.get("unit")),
        container=_container(mapping(item.get("container"))),
        name=text(item.get("name")),
        state=text(item.get("state")),
        protected=item.get("protected") is True,
        memory_mib=whole(item.get("memory_mib")),
        uses=frozenset(texts(item.get("gpus"), _MOST_GPUS)),
        per_gpu_mib={text(uuid): whole(memory[uuid]) for uuid in list(memory)[:_MOST_GPUS]},
    )


def _container(container: Mapping[str, Any]) -> str:
    """Runtime and name, such as "docker llm"; "" outside of any."""
    name = text(container.get("name")) or text(container.get("id"))[:12]
    return ("%s %s" % (text(container.get("runtime")), name)).strip() if container else ""


def group_holders(holders: Sequence[Holder], uuid: Optional[str] = None) -> List[Dict[str, Any]]:
    """One entry for each group of holders of one GPU, without a UUID of all of them; most memory first."""
    groups: Dict[Tuple[str, str, str, str], List[Holder]] = {}
    for holder in holders:
        if uuid is None or uuid in holder.uses:
            groups.setdefault(holder.group, []).append(holder)
    found = [_entry(members, uuid) for members in groups.values()]
    return sorted(found, key=lambda one: (-(one["memory_mib"] or 0), one["user"], one["pids"]))


def _entry(members: Sequence[Holder], uuid: Optional[str]) -> Dict[str, Any]:
    first = members[0]
    memory = [holder.memory_mib if uuid is None else holder.per_gpu_mib.get(uuid) for holder in members]
    known = [number for number in memory if number is not None]
    return {
        "user": first.user,
        "unit": first.unit,
        "container": first.container,
        "names": list(dict.fromkeys(holder.name for holder in members if holder.name))[:_MOST_NAMES],
        "pids": [holder.pid for holder in members if holder.pid is not None],
        "memory_mib": sum(known) if len(known) == len(memory) else None,
        "states": list(dict.fromkeys(holder.state for holder in members if holder.state)),
        "protected": any(holder.protected for holder in members),
    }


def holder_label(holder: Mapping[str, Any]) -> str:
    """A group of holders in a few words: user/where, and how many processes."""
    where = short(holder["container"] or holder["unit"] or ", ".join(holder["names"][:2]) or "unknown process")
    count = len(holder["pids"])
    odd = "".join(" (%s)" % state for state in holder["states"] if state in _ODD_STATES)
    return "%s/%s%s%s" % (short(holder["user"]), where, " x%d" % count if count > 1 else "", odd)


def labels(holders: Sequence[Mapping[str, Any]], most: int) -> str:
    """The first groups of holders, and how many more there are."""
    shown = [holder_label(holder) for holder in holders[:most]]
    left = len(holders) - len(shown)
    return ", ".join(shown) + (" and %d more" % left if left else "")
