# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures and hangs on request, as nvidia-ml-py reports them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import fakegpu
import pytest
from harness import SIMULATOR, Host

CODE_OF = "try: {}\nexcept n.NVMLError as e: result = e.value\nelse: result = 0"


def test_error_of_one_gpu(host: Host) -> None:
    fakegpu.fail("nvmlDeviceGetMemoryInfo*", 1, 15, state=host.state)
    assert host.nvml(CODE_OF.format("n.nvmlDeviceGetMemoryInfo(h[0])")) == 0
    assert host.nvml(CODE_OF.format("n.nvmlDeviceGetMemoryInfo(h[1])")) == 15
    assert host.nvml(CODE_OF.format("n.nvmlDeviceGetMemoryInfo(h[1], version=n.nvmlMemory_v2)")) == 15
    fakegpu.clear(state=host.state)
    assert host.nvml(CODE_OF.format("n.nvmlDeviceGetMemoryInfo(h[1])")) == 0


def test_handle_that_cannot_be_had(host: Host) -> None:
    fakegpu.fail("nvmlDeviceGetHandleBy*", 1, 4, state=host.state)
    script = "import pynvml as n\nn.nvmlInit()\n{}\nprint(result)"
    by_index = host.python(script.format(CODE_OF.format("n.nvmlDeviceGetHandleByIndex(1)")))
    by_uuid = host.python(
        script.format(CODE_OF.format("n.nvmlDeviceGetHandleByUUID('{}')".format(fakegpu.gpu_uuid(1))))
    )
    assert (by_index.strip(), by_uuid.strip()) == ("4", "4")


def test_only_some_calls(host: Host) -> None:
    fakegpu.fail("nvmlDeviceGetMemoryInfo", 0, 999, after=2, times=1, state=host.state)
    codes = [host.nvml(CODE_OF.format("n.nvmlDeviceGetMemoryInfo(h[0])")) for _call in range(2)]
    codes += host.nvml(
        "result = []\nfor _ in range(2):\n"
        "    try: n.nvmlDeviceGetMemoryInfo(h[0]); result.append(0)\n"
        "    except n.NVMLError as e: result.append(e.value)"
    )
    assert codes == [0, 0, 999, 0]


@pytest.mark.parametrize("code", [18, 9])
def test_library_that_does_not_initialise(host: Host, code: int) -> None:
    fakegpu.set_value("init", code, state=host.state)
    script = "import pynvml as n\n{}\nprint(result)".format(CODE_OF.format("n.nvmlInit()"))
    assert int(host.python(script)) == code


def test_no_driver(host: Host) -> None:
    (host.state / "config").unlink()
    script = "import pynvml as n\n{}\nprint(result)".format(CODE_OF.format("n.nvmlInit()"))
    assert int(host.python(script)) == 9


def test_count_differs_from_the_devices(host: Host) -> None:
    fakegpu.set_value("count", 3, state=host.state)
    script = "import pynvml as n\nn.nvmlInit()\n{}\nprint(n.nvmlDeviceGetCount(), result)"
    assert host.python(script.format(CODE_OF.format("n.nvmlDeviceGetHandleByIndex(2)"))).split() == ["3", "2"]


def test_function_that_an_old_library_lacks(host: Host) -> None:
    fakegpu.missing("nvmlDeviceGetComputeRunningProcesses_v3", state=host.state)
    # nvidia-ml-py turns this into an exception that is no NVMLError.
    assert host.nvml(
        "try: n.nvmlDeviceGetComputeRunningProcesses(h[0])\nexcept Exception as e:"
        " result = [type(e).__name__, isinstance(e, n.NVMLError)]"
    ) == ["NVMLLibraryMismatchError", False]


def test_library_built_without_a_function(host: Host, tmp_path: Path) -> None:
    build = [str(SIMULATOR / "nvml" / "build.sh"), str(tmp_path / "old"), "--without", "nvmlDeviceGetMemoryInfo_v2"]
    subprocess.run(build, check=True)
    host.environment["LD_LIBRARY_PATH"] = str(tmp_path / "old")
    assert host.nvml(CODE_OF.format("n.nvmlDeviceGetMemoryInfo(h[0])")) == 0
    assert host.nvml(CODE_OF.format("n.nvmlDeviceGetMemoryInfo(h[0], version=n.nvmlMemory_v2)")) == 13


def test_slow_call(host: Host) -> None:
    fakegpu.hang("nvmlDeviceGetMemoryInfo", 1, 0.4, state=host.state)

    def seconds(gpu: int) -> float:
        began = time.monotonic()
        host.nvml("result = n.nvmlDeviceGetMemoryInfo(h[{}]).used".format(gpu))
        return time.monotonic() - began

    seconds(0)  # starts the process that asks
    # The quickest of several says what the call itself takes, however busy the machine is.
    assert seconds(1) >= 0.4
    assert min(seconds(0) for _attempt in range(5)) < 0.4


def test_hang_outlives_sigterm(host: Host) -> None:
    fakegpu.hang("nvmlDevice*", 1, "forever", state=host.state)
    code = "import pynvml as n\nn.nvmlInit(); print('in', flush=True); n.nvmlDeviceGetHandleByIndex(1)"
    process = host.start([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    time.sleep(0.2)
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.4)
    process.kill()
    assert process.wait(5) == -9
