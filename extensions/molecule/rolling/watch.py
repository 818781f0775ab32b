# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sample the servers of a host until it is ended: a line for each answer, "SECONDS PORT 0|1".

usage: watch.py FILE PORT...

Only an answer of 200 is a 1. SECONDS is when it was asked, by the clock that all test hosts share.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time

INTERVAL_SECONDS = 0.4
TIMEOUT_SECONDS = 5


def serves(port: int) -> bool:
    """Ask one server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def watch(port: int, output: object) -> None:
    """Sample one server for ever."""
    while True:
        asked = time.time()
        print("%.3f %d %d" % (asked, port, serves(port)), file=output, flush=True)
        time.sleep(INTERVAL_SECONDS)


with open(sys.argv[1], "w", encoding="ascii") as lines:
    threads = [threading.Thread(target=watch, args=(int(port), lines)) for port in sys.argv[2:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
