# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases of the hosts of one server belong together, for going back to them: pure, no I/O.

Each host keeps releases of its own.  Where one was proven, its host remembers which releases the other ranks ran then:
the IDs of all, in the order of the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError

PREVIOUS = "previous"
_ADOPTED = "adopted"
# So many sets are named in a message.
_MOST = 5

# The IDs of the releases of all ranks.
Set = Tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """What one host has.  releases: by ID, as sglang_release lists them; current, last_good: IDs, "" for none."""

    host: str
    releases: Mapping[str, Mapping[str, Any]]
    current: str = ""
    last_good: str = ""

    def has_proven(self, identity: str) -> bool:
        """Whether it can go back to a release that was proven."""
        found = self.releases.get(identity)
        return found is not None and found.get("proven") is True and not found.get("broken")

    def requested(self, identity: str) -> Mapping[str, Any]:
        """What a release asks for."""
        found = self.releases.get(identity, {}).get("requested")
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class Target:
    """Where to go back to.

    releases: of all ranks.  alone: each is a server of its own host.  requested: what that of rank 0 asks for.
    """

    releases: Set
    alone: bool
    requested: Mapping[str, Any]


def read_kept(host: str, result: Any) -> Kept:
    """What sglang_release has listed on a host.  Raises RolloutError where it has not."""
    listed = result.get("releases") if isinstance(result, Mapping) else None
    links = result.get("release") if isinstance(result, Mapping) else None
    if not isinstance(listed, list) or not isinstance(links, Mapping):
        raise RolloutError("It is not known which releases %s keeps." % host)
    entries = [entry for entry in listed if isinstance(entry, Mapping)]
    return Kept(
        host,
        {str(entry.get("id")): entry for entry in entries},
        str(links.get("id") or ""),
        str(links.get("last_good_id") or ""),
    )


def proven_sets(kept: Sequence[Kept]) -> List[Set]:
    """The sets of releases that were proven together and are kept by all ranks, the one that was proven last first."""
    found: Dict[Set, str] = {}
    for rank, one in enumerate(kept):
        for identity, entry in one.releases.items():
            ranks = entry.get("ranks")
            if not isinstance(ranks, list) or len(ranks) != len(kept) or ranks[rank] != identity:
                continue
            together = tuple(str(name) for name in ranks)
            if all(other.has_proven(name) for other, name in zip(kept, together)):
                found[together] = max(found.get(together, ""), str(entry.get("proven_at") or ""))
    return sorted(found, key=lambda together: (found[together], together), reverse=True)


def last_target(kept: Sequence[Kept]) -> Target:
    """Where a server goes back to whose new configuration failed.  Raises RolloutError where there is nothing."""
    sets = proven_sets(kept)
    if sets:
        return _target(kept, sets[0], alone=False)
    last = tuple(one.last_good for one in kept)
    without = [one.host for one in kept if not one.last_good]
    if without:
        raise RolloutError(
            "There is nothing to go back to: %s %s no proven release of this server."
            % (", ".join(without), "has" if len(without) == 1 else "have")
        )
    if all(_is_single(one.requested(name)) for one, name in zip(kept, last)):
        return _target(kept, last, alone=True)
    if _were_adopted_together(kept, last):
        return _target(kept, last, alone=False)
    raise RolloutError(
        "There is nothing to go back to: the releases that were proven last do not belong together (%s). "
        "Deploy a configuration that works." % ", ".join("%s %s" % (one.host, one.last_good) for one in kept)
    )


def wanted_target(kept: Sequence[Kept], wanted: str) -> Target:
    """Where somebody wants to go back to.  Raises RolloutError where there is no such set of releases, or several.

    wanted: "previous" for the set that was proven last of those that are not the current one, "" for the one that was
    proven last, or the ID of a release of any rank, or its beginning.
    """
    sets = proven_sets(kept)
    current = tuple(one.current for one in kept)
    if not wanted:
        meant = sets[:1]
    elif wanted == PREVIOUS:
        # A return that was begun and not finished: whoever asks again means the same one.
        begun = current in sets and current != tuple(one.last_good for one in kept)
        meant = [current] if begun else [together for together in sets if together != current][:1]
    else:
        meant = [together for together in sets if any(name.startswith(wanted) for name in together)]
    if len(meant) == 1:
        return _target(kept, meant[0], alone=False)
    told = "; ".join(" + ".join(together) for together in (meant or sets)[:_MOST]) or "none"
    if meant:
        raise RolloutError(
            "sglang_release: %r can mean %d sets of releases that were proven together: %s. Give more of an ID."
            % (wanted, len(meant), told)
        )
    raise RolloutError(
        "sglang_release: %s have proven no %r together that all of them keep. What they keep, the newest first: %s."
        % (", ".join(one.host for one in kept), wanted or "release", told)
    )


def _target(kept: Sequence[Kept], releases: Set, alone: bool) -> Target:
    return Target(releases, alone, kept[0].requested(releases[0]))


def _is_single(requested: Mapping[str, Any]) -> bool:
    return _number(requested.get("nnodes")) in (None, 1)


def _were_adopted_together(kept: Sequence[Kept], releases: Set) -> bool:
    """Whether somebody had started all of them by hand, as the ranks of one server."""
    asked = [one.requested(name) for one, name in zip(kept, releases)]
    adopted = all(one.releases.get(name, {}).get("origin") == _ADOPTED for one, name in zip(kept, releases))
    ranks = [(_number(fields.get("node_rank")) or 0, _number(fields.get("nnodes"))) for fields in asked]
    meeting = {str(fields.get("dist_init_addr")) for fields in asked}
    return adopted and ranks == [(rank, len(kept)) for rank in range(len(kept))] and len(meeting) == 1


def _number(value: Any) -> Optional[int]:
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None
