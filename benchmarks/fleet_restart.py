# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What restarting a fleet costs its controller and how long it takes, compared with a playbook of shell tasks and with
parallel ssh, in the same run.

On hosts that are namespaces of this machine, each with an sshd, and on replayed hosts: the controller calls an ssh that
answers as one real host did, and takes as long.  As root.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Sequence

import fleet_hosts
import fleet_model
import fleet_replay
import measure
import paths
from fleet_cost import Cost, control_group
from fleet_ways import ALL, LOOP, OURS, SHELL, Bench, environment, in_order

# A server that loads for so long (seconds), for all ways.
LOAD = 8.0
SIZES = (1, 10)
MOST = 244
FLEETS = ((1000, 1), (1000, 5), (10000, 1), (10000, 10), (10000, 50))

Table = Dict[str, Dict[int, List[Cost]]]


def rows(table: Table) -> List[List[str]]:
    """The lines of a table of costs: medians, by size and way."""
    lines = []
    for size in sorted({size for found in table.values() for size in found}):
        practice = median(table.get(SHELL, {}).get(size, []), "wall")
        for name in table:
            costs = table[name].get(size)
            if not costs:
                continue
            wall = median(costs, "wall")
            controller = median(costs, "controller")
            lines.append(
                [
                    str(size),
                    name,
                    "%s s" % measure.number(wall),
                    "" if name == SHELL or not practice else "%.2f times" % (practice / wall),
                    "%s s" % measure.number(controller),
                    "%s s" % measure.number(controller / size),
                    "%s MB" % measure.number(median(costs, "memory_mb")),
                    "%s MB" % measure.number(median(costs, "memory_mb") / size),
                    "%s s" % measure.number(median(costs, "on_hosts") / size) if costs[0].on_hosts else "",
                    str(max(cost.most_calls for cost in costs)),
                ]
            )
    return lines


HEADER = (
    "hosts",
    "way",
    "wall time",
    "the playbook of shell tasks takes",
    "controller's processor time",
    "for each host",
    "controller's memory",
    "for each host ",
    "processor time on each host",
    "round trips of a host",
)


def median(costs: Sequence[Cost], name: str) -> float:
    """The median of one figure; 0 where nothing was measured."""
    return measure.Summary([getattr(cost, name) for cost in costs]).median if costs else 0.0


def line_of(table: Table, name: str, figure: str) -> fleet_model.Line:
    """A figure of a way by the number of hosts.  Raises ValueError for fewer than two sizes."""
    return fleet_model.fit([(size, median(costs, figure)) for size, costs in table.get(name, {}).items()])


def forecast(table: Table, load: float) -> List[List[str]]:
    """The lines of the table of larger fleets; none where there are not two sizes."""
    try:
        wall, memory = (line_of(table, OURS, figure) for figure in ("wall", "memory_mb"))
    except ValueError:
        return []
    lines = []
    for hosts, controllers in FLEETS:
        for minutes in (load / 60, 8.0):
            fleet = fleet_model.Fleet(hosts, controllers, more_load=minutes * 60 - load)
            lines.append(
                [
                    str(hosts),
                    str(controllers),
                    "%s min" % measure.number(minutes),
                    "%.1f min" % (fleet.seconds(wall) / 60),
                    "%.1f GB" % fleet.memory_gb(memory.fixed, memory.each),
                ]
            )
    return lines


def on_hosts(
    sizes: Sequence[int], names: Sequence[str], options: argparse.Namespace, settings: Dict[str, str]
) -> Table:
    """All ways on namespaces.  Raises OSError."""
    table: Table = {name: {} for name in ALL if name in names}
    for size in sizes:
        with fleet_hosts.running(size, options.load) as hosts, control_group(hosts.group / "controller") as group:
            bench = Bench(hosts, group, settings, options.logs)

            def run(name: str, bench: Bench = bench, size: int = size) -> Cost:
                cost = bench.run(name, size)
                print("%d hosts: %s: %.1f s" % (size, name, cost.wall), file=sys.stderr, flush=True)
                return cost

            for name, costs in in_order(run, names, options.repeats).items():
                table[name][size] = costs
    return table


def replayed(sizes: Sequence[int], options: argparse.Namespace, settings: Dict[str, str]) -> Table:
    """The two playbooks with replayed hosts.  Raises OSError."""
    table: Table = {SHELL: {}, OURS: {}}
    if not sizes:
        return table
    ssh = fleet_replay.build(options.logs)
    with fleet_hosts.running(1, options.load) as hosts, control_group(hosts.group / "controller") as group:
        settings = dict(settings, FLEET_GROUP=str(group))
        # What halves the time of a task on a test host is not there on a real one.
        hosts.run(1, "rm", "/usr/lib/python3/dist-packages/zip_bytecode.pth")
        bench = Bench(hosts, group, settings, options.logs)
        bench.run(LOOP, 1)
        recorded = {SHELL: fleet_replay.record(SHELL, 4, hosts, settings, options.logs)}
        bench.run(OURS, 1)
        recorded[OURS] = fleet_replay.record(OURS, 4, hosts, settings, options.logs)
        for name, stretch in ((SHELL, fleet_replay.more_polls), (OURS, fleet_replay.longer_wait)):
            calls = recorded[name] / "calls"
            known = fleet_replay.read_calls(calls.read_text(encoding="ascii"))
            longer = stretch(known, options.replayed_load - options.load)
            calls.write_text(fleet_replay.written(longer), encoding="ascii")
        for size in sizes:
            for name, found in table.items():
                cost = fleet_replay.replay(name, 4, size, recorded[name], ssh, settings, options.logs)
                print("%d replayed hosts: %s: %.1f s" % (size, name, cost.wall), file=sys.stderr, flush=True)
                found[size] = [cost]
    return table


def show(real: Table, replay: Table, options: argparse.Namespace) -> None:
    """Print all tables, or JSON."""
    if options.json:
        found: Dict[str, Any] = {"machine": measure.machine(), "load_s": [options.load, options.replayed_load]}
        for key, table in (("hosts", real), ("replayed", replay)):
            found[key] = {
                name: [cost.as_dict() for costs in sizes.values() for cost in costs] for name, sizes in table.items()
            }
        print(json.dumps(found, indent=2))
        return
    print("Restarting a fleet (%s)" % measure.machine())
    for heading, table, load in (
        ("Hosts that share the machine", real, options.load),
        ("Replayed hosts", replay, options.replayed_load),
    ):
        lines = rows(table)
        if lines:
            told = (heading, measure.number(load), measure.table(HEADER, lines))
            print("\n%s, servers that load for %s s:\n\n%s" % told)
    lines = forecast(replay, options.replayed_load)
    if lines:
        header = ["hosts", "controllers", "load", "wall time", "memory of each controller"]
        print("\nCalculated from the replayed hosts:\n\n%s" % measure.table(header, lines))


def sizes_of(text: str) -> List[int]:
    """Numbers of hosts with commas between them; may be empty."""
    found = [int(word) for word in text.replace(" ", "").split(",") if word]
    if any(size < 1 for size in found):
        raise argparse.ArgumentTypeError("numbers from 1 on, such as 1,10")
    return found


def main() -> int:
    """Measure, and print the report; exit status 2 where nothing can be measured."""
    parser = measure.parser(__doc__, repeats=1)
    default = ",".join(map(str, SIZES))
    parser.add_argument("--sizes", type=sizes_of, default=default, help="numbers of hosts; default: %(default)s")
    parser.add_argument("--replayed", type=sizes_of, default=default, help="the same; default: %(default)s")
    parser.add_argument("--load", type=float, default=LOAD, help="seconds that a server loads; default: %(default)s")
    parser.add_argument(
        "--replayed-load", type=float, metavar="LOAD", help="the same of replayed servers, LOAD or more; default: LOAD"
    )
    parser.add_argument("--ways", default="; ".join(ALL), help="of all hosts' ways; default: %(default)s")
    parser.add_argument("--logs", type=Path, help="a folder for what the runs print; default: none is kept")
    options = parser.parse_args()
    if options.replayed_load is None:
        options.replayed_load = options.load
    if options.replayed_load < options.load:
        parser.error("--replayed-load: must be at least --load")
    names = [name.strip() for name in options.ways.split(";")]
    unknown = [name for name in names if name not in ALL]
    if unknown or any(size > MOST for size in options.sizes):
        parser.error("--ways: unknown: %s" % unknown if unknown else "--sizes: at most %d" % MOST)
    if os.geteuid():
        print("fleet_restart.py: needs root: it makes hosts", file=sys.stderr)
        return 2
    work = Path(tempfile.mkdtemp(prefix="fleet-restart-"))
    kept, options.logs = options.logs, work
    try:
        with paths.collections() as collections:
            settings = environment(collections, work)
            real = on_hosts(options.sizes, names, options, settings)
            replay = replayed(options.replayed, options, settings)
    except OSError as exc:
        print("fleet_restart.py: %s" % exc, file=sys.stderr)
        kept = kept or Path(tempfile.mkdtemp(prefix="fleet-logs-"))
        print("fleet_restart.py: what the runs printed is in %s" % kept, file=sys.stderr)
        return 2
    finally:
        if kept:
            shutil.copytree(work, kept, dirs_exist_ok=True)
        shutil.rmtree(work, ignore_errors=True)
    show(real, replay, options)
    return 0


if __name__ == "__main__":
    measure.command(main)
