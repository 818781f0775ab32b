# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left of a sweep, who does what next, and what was there before: pure, no I/O.

Rows are those of `sweep_store.Store.results`, with their points.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_store import FAILED, MEASURED

STOPPED, RELEASE, UNMANAGED = "stopped", "release", "unmanaged"

Row = Mapping[str, Any]


def points_left(rows: Sequence[Row], concurrencies: Sequence[int], retry_failed: bool = False) -> Dict[str, List[int]]:
    """The concurrencies that were not measured, by key; only of rows that have some.

    retry_failed: what failed counts as not measured.
    """
    left = {}
    for row in rows:
        failed = row.get("state") == FAILED
        if failed and not retry_failed:
            continue
        done = {
            point["concurrency"] for point in row.get("points") or [] if point["state"] == MEASURED or not retry_failed
        }
        missing = [number for number in concurrencies if number not in done]
        if missing:
            left[row["key"]] = missing
    return left


def choose(
    rows: Sequence[Row], left: Mapping[str, Sequence[int]], claims: Mapping[str, Row], host: str, alive: Sequence[str]
) -> Optional[Row]:
    """The configuration that a host measures next, None where there is none for it.

    claims: of this run, by key.  alive: the hosts of the run that can be reached; what others have begun is free again.
    """

    def taken(row: Row) -> bool:
        owner = claims.get(row["key"], {}).get("host", "")
        return owner not in ("", host) and owner in alive

    def belongs_elsewhere(row: Row) -> bool:
        # Its points must be of one host, the one that measured the first of them.
        mine = row.get("host") or ""
        return mine not in ("", host) and (mine in alive or bool(row.get("baseline")))

    open_ = [row for row in rows if row["key"] in left and not taken(row) and not belongs_elsewhere(row)]
    # First what was begun, whose server may still run; then what all others are compared with.
    open_.sort(key=lambda row: (not _begun(row, host), not row.get("baseline")))
    return open_[0] if open_ else None


def _begun(row: Row, host: str) -> bool:
    return row.get("host") == host and row.get("state") == "proven"


def seconds_left(rows: Sequence[Row], left: Mapping[str, Sequence[int]], hosts: int) -> Optional[float]:
    """Seconds that the rest takes, by what the rest took so far; None where nothing was measured yet."""
    takes: Dict[int, List[float]] = {}
    start = start_seconds(rows)
    for row in rows:
        for point in row.get("points") or []:
            if _is_number(point.get("took")):
                takes.setdefault(point["concurrency"], []).append(float(point["took"]))
    every = [value for values in takes.values() for value in values]
    if not every or start is None:
        return None
    total = 0.0
    for row in rows:
        missing = left.get(row["key"], ())
        if missing and not row.get("points"):
            total += start
        total += sum(_mean(takes.get(number, every)) for number in missing)
    return total / max(hosts, 1)


def start_seconds(rows: Sequence[Row]) -> Optional[float]:
    """Seconds from taking a configuration to its proof, on average; None where none was started yet."""
    starts = [float(row["took"]) for row in rows if _is_number(row.get("took"))]
    return _mean(starts) if starts else None


def first_estimate(configurations: int, points: int, start_seconds: Optional[float]) -> str:
    """What can be said of the time before anything was measured."""
    if not points:
        return ""
    if start_seconds is None:
        return "How long it takes shows with the first points."
    return "Loading alone takes about %d min (%d times %.0f s); what the points take shows with the first of them." % (
        max(1, round(configurations * start_seconds / 60)),
        configurations,
        start_seconds,
    )


def ratio_to_baseline(rows: Sequence[Row], row: Row, point: Mapping[str, Any]) -> Optional[float]:
    """Throughput divided by the baseline's of the same host at the same concurrency, where both are known."""
    mine = _throughput(point)
    if row.get("baseline") or mine is None:
        return None
    baselines = [item for item in rows if item.get("baseline")]
    own = [item for item in baselines if item.get("host") == row.get("host")]
    for item in own or (baselines if len(baselines) == 1 else []):
        for other in item.get("points") or []:
            theirs = _throughput(other)
            if other["concurrency"] == point["concurrency"] and theirs:
                return mine / theirs
    return None


def original_of(found: Mapping[str, Any], known: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """What ran on a host before the sweep, and so what comes back.

    found: `running` (whether a server of the instance runs), `release` (from which), `unmanaged` (whether somebody's
    server is on the port) and `releases` (as sglang_release lists them).  known: what an earlier run of the same sweep
    found and did not put back.  A sweep marks none of its releases as proven, so a release that is proven is nobody's
    leftover.
    """
    releases: Sequence[Mapping[str, Any]] = found.get("releases") or []
    proven = {item["id"] for item in releases if item.get("proven") or item.get("last_good")}
    release = str(found.get("release") or "")
    if found.get("running") and release in proven:
        return {"kind": RELEASE, "release": release}
    if known:
        if known.get("kind") == UNMANAGED and not found.get("unmanaged"):
            # It was taken over, and the run ended before that was written down.
            adopted = [item["id"] for item in releases if item.get("origin") == "adopted"]
            return {"kind": RELEASE, "release": adopted[0]} if adopted else _stopped(releases)
        return dict(known)
    if found.get("unmanaged"):
        return {"kind": UNMANAGED}
    if not found.get("running"):
        return _stopped(releases)
    last = [item["id"] for item in releases if item.get("last_good")]
    if last:
        return {"kind": RELEASE, "release": last[0], "instead_of": release}
    return {"kind": RELEASE, "release": release} if release else _stopped(releases)


def _stopped(releases: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Nothing runs; the release is the one that would be started, as by a boot of the host."""
    return {"kind": STOPPED, "release": next((item["id"] for item in releases if item.get("current")), "")}


def last_start(found: Mapping[str, Any]) -> Optional[float]:
    """Seconds that the server took to load when it was proven last; None where nobody knows."""
    for item in found.get("releases") or []:
        if _is_number(item.get("ready_after")):
            return float(item["ready_after"])
    return None


def _throughput(point: Mapping[str, Any]) -> Optional[float]:
    value = (point.get("median") or {}).get("output_throughput")
    return float(value) if value is not None and point.get("state") == MEASURED and _is_number(value) else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
