# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say how many of the watched servers served at the worst moment, and which were down in which order, as JSON.

usage: judge.py FROM TO NAME=FILE:PORT...      FROM, TO: seconds, by the clock of the samples

A server is down from the first sample that failed, and up from the first that succeeded again. Only what lies between
FROM and TO counts.

fewest      how many served at the worst moment
down        the names of those that were down, in the order in which they went
samples     how many there are of the server that has the fewest
"""

from __future__ import annotations

import json
import sys


def samples(path: str, port: str) -> list[tuple[float, bool]]:
    """Read those of one server, in their order."""
    with open(path, encoding="ascii") as lines:
        words = [line.split() for line in lines if line.endswith("\n")]
    return sorted((float(asked), ok == "1") for asked, its_port, ok in words if its_port == port)


begin, end = float(sys.argv[1]), float(sys.argv[2])
changes, counts, serving, down = [], [], 0, []
for word in sys.argv[3:]:
    name, _equals, place = word.partition("=")
    found = samples(*place.rsplit(":", 1))
    before = [ok for asked, ok in found if asked <= begin]
    inside = [(asked, ok) for asked, ok in found if begin < asked <= end]
    counts.append(len(inside))
    was = before[-1] if before else False
    serving += was
    if not was:
        down.append((begin, name))
    for asked, ok in inside:
        if ok != was:
            changes.append((asked, 1 if ok else -1))
            if not ok:
                down.append((asked, name))
            was = ok

fewest = serving
for _asked, change in sorted(changes):
    serving += change
    fewest = min(fewest, serving)
names = list(dict.fromkeys(name for _since, name in sorted(down)))
print(json.dumps({"fewest": fewest, "down": names, "samples": min(counts)}))
