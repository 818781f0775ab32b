# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells when the driver gives a GPU's memory back: a look every millisecond, in a process of its own.

Prints "busy" once more than --limit MiB are in use, then the time of the first look at which they no longer are, in
seconds of the system's monotonic clock, which all processes share.
"""

from __future__ import annotations

import argparse
import time


def main() -> None:
    """Sample until the memory is back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpu", type=int, help="NVML index")
    parser.add_argument("--limit", type=int, required=True, metavar="MIB")
    parser.add_argument("--every", type=float, default=0.001, metavar="SECONDS", help="default: %(default)s")
    options = parser.parse_args()

    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(options.gpu)

    def used() -> float:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return float(memory.used) / (1 << 20)

    while used() <= options.limit:
        time.sleep(options.every)
    print("busy", flush=True)
    while used() > options.limit:
        time.sleep(options.every)
    print(time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
