# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one look at the GPUs costs inside a module, compared with starting a process for it, as polling scripts do.

On simulated GPUs, each of which one process uses.  Where the host has nvidia-smi, it is asked too (about the host's
own GPUs); a Python that does nothing stands for the least that any process costs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List

import measure
import paths
from simulation import Simulation, in_simulation, simulated

GPUS = (1, 8)
LOOKS = 200
PROCESS = "python3 -c pass"
SMI = "nvidia-smi -q -x"
LOOK = "Observer.look(), GPUs: %d, each with one process"
SCAN = "Observer.look() with a scan of all processes, GPUs: %d"


def look_here(gpus: int, looks: int) -> None:
    """In a process that sees the simulated GPUs: print the seconds of each look as JSON."""
    import os

    from ansible_collections.inferops.sglang.plugins.module_utils.gpu import device_nodes
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import EVERYTHING, Observer, select
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
    from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

    device_nodes.DEV = os.environ["FAKEGPU_DEV"]
    procfs = ProcFs()
    with open_session(10.0, procfs) as session:
        observer = Observer(session, procfs, select(session, [], gpus))
        listed = len(observer.look(EVERYTHING).holders)
        found = {"plain": [], "scan": [], "holders": [listed]}  # type: Dict[str, List[float]]
        for _number in range(looks):
            found["plain"].append(measure.timed(observer.look))
        for _number in range(max(1, looks // 10)):
            found["scan"].append(measure.timed(lambda: observer.look(EVERYTHING)))
    print(json.dumps(found))


def looks_at(simulation: Simulation, gpus: int, looks: int) -> Dict[str, List[float]]:
    """The seconds of the looks at that many GPUs, each of which is held by a process.  Raises OSError."""
    fakegpu = str(paths.SIMULATOR / "fakegpu.py")
    holders = []
    try:
        for gpu in range(gpus):
            command = [sys.executable, fakegpu, "hold", "--gpu", str(gpu), "--mib", "1000", "--lifetime", "600"]
            holders.append(subprocess.Popen(command, env=simulation.environment, stdout=subprocess.PIPE, text=True))
        for holder in holders:
            assert holder.stdout is not None
            holder.stdout.readline()
        output = in_simulation(__file__, simulation.environment, "--look-here", gpus, "--looks", looks)
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
    found: Dict[str, List[float]] = json.loads(output)
    if found["holders"] != [gpus]:
        raise OSError("a look saw %s processes on %d GPUs with one each" % (found["holders"], gpus))
    return found


def _run(command: List[str]) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def main() -> int:
    """Measure, and print the report; exit status 2 where nothing can be measured."""
    parser = measure.parser(__doc__, repeats=20)
    parser.add_argument("--looks", type=int, default=LOOKS, help="at each number of GPUs; default: %(default)s")
    parser.add_argument("--look-here", type=int, metavar="GPUS", help="(for the benchmark itself) be the process")
    options = parser.parse_args()
    if options.look_here:
        look_here(options.look_here, options.looks)
        return 0
    work: Dict[str, Callable[[], object]] = {PROCESS: lambda: _run([sys.executable, "-c", "pass"])}
    if shutil.which("nvidia-smi"):
        work[SMI] = lambda: _run(["nvidia-smi", "-q", "-x"])
    report = measure.Report("One look at the GPUs")
    try:
        seconds = measure.in_turn(work, options.repeats)
        for gpus in GPUS:
            with simulated(gpus) as simulation:
                found = looks_at(simulation, gpus, options.looks)
            practice = SMI if SMI in work else PROCESS
            report.add(LOOK % gpus, found["plain"], practice=practice)
            report.add(SCAN % gpus, found["scan"], practice=practice)
    except (OSError, subprocess.CalledProcessError) as exc:
        print("%s: %s" % (Path(__file__).name, exc), file=sys.stderr)
        return 2
    for name, values in seconds.items():
        report.add(name, values)
    report.show(options.json)
    return 0


if __name__ == "__main__":
    measure.command(main)
