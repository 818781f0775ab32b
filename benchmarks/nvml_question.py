# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi would print, where there is none: a process that asks NVML one question and ends."""

from __future__ import annotations

import argparse


def main() -> None:
    """Print the used MiB of a GPU, or the PIDs of the processes on it, one a line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("question", choices=["used", "pids"])
    parser.add_argument("gpu", type=int, help="NVML index")
    options = parser.parse_args()

    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(options.gpu)
    if options.question == "used":
        print(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used >> 20)
    else:
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            print(process.pid)


if __name__ == "__main__":
    main()
