# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in ``nvidia-smi`` for simulated GPUs. It asks the simulated NVML, so the two always agree.

Answers ``-q -x``, ``-q -x -i ID[,ID...]``, ``-L`` and ``--version``. What NVML does on request (fail, hang) shows here
as well; what only nvidia-smi does is said by lines in ``$FAKEGPU_DIR/config`` that the simulated library ignores, for
one GPU by its index, or for every run with ``*``:

``smi hang GPU|* SECONDS|forever``   sleep; only SIGKILL ends it
``smi exit GPU|* CODE TEXT``         print the text and exit, without an answer
``smi omit GPU|*``                   leave the GPU out of the answer, and count it
``smi set GPU|* PATH TEXT``          replace the text of an element of the GPU, as ``fb_memory_usage/used``
``smi drop GPU|* PATH``              leave an element out
``smi cut * BYTES``                  end the answer after so many bytes
``smi say * TEXT``                   print a line before the answer

``install(FOLDER)`` makes an executable ``nvidia-smi`` there. Needs nvidia-ml-py, and the library in LD_LIBRARY_PATH.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple
from xml.etree import ElementTree

import fakegpu

_NO_COMMUNICATION = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
_RECOVERY_WORDS = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain", "Bus Reset")
_MIB = 1 << 20


# ------------------------------------------------------------------------------------------------- for tests


def install(folder: Path) -> Path:
    """Make ``nvidia-smi`` in a folder, which runs this file with this interpreter."""
    script = folder / "nvidia-smi"
    script.write_text('#!/bin/sh\nexec {} {} "$@"\n'.format(shlex.quote(sys.executable), shlex.quote(__file__)))
    script.chmod(0o755)
    return script


def misbehave(*words: object, state: fakegpu.StatePath = None) -> None:
    """Add one of the lines above, without its first word: ``misbehave("hang", 1, "forever")``."""
    with fakegpu.edit(state) as lines:
        lines.append(" ".join(["smi", *map(str, words)]))


def behave(state: fakegpu.StatePath = None) -> None:
    """Remove all of them."""
    fakegpu.clear("smi", state=state)


# --------------------------------------------------------------------------------------------------- rules


def _rules(kind: str, *gpus: object) -> Iterator[List[str]]:
    """The values of the rules of a kind that name one of these GPUs; "*" is what rules for all of them name."""
    for line in (fakegpu.folder() / "config").read_text().splitlines():
        words = line.split(None, 3)
        if words[:2] == ["smi", kind] and words[2] in map(str, gpus):
            yield words[3].split(None, 1) if len(words) > 3 else []


def _obey(gpu: object) -> None:
    for seconds, *_rest in _rules("hang", gpu):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(3600.0 if seconds == "forever" else float(seconds))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    for code, *text in _rules("exit", gpu):
        _quit(int(code), "".join(text))


def _quit(code: int, text: str) -> None:
    """End without an answer."""
    print(text, flush=True)
    os._exit(code)


# --------------------------------------------------------------------------------------------------- asking


class Gpus:
    """The simulated NVML."""

    def __init__(self) -> None:
        import pynvml

        self.nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            code = error.value
            _quit(code, _NO_COMMUNICATION if code == 9 else "Failed to initialize NVML: {}".format(error))

    def ask(self, name: str, *arguments: Any, **options: Any) -> Tuple[Any, str]:
        """A value and "", or None and how nvidia-smi shows that there is none."""
        try:
            return getattr(self.nvml, name)(*arguments, **options), ""
        except (self.nvml.NVMLError_NotSupported, self.nvml.NVMLError_FunctionNotFound):
            return None, "N/A"
        except self.nvml.NVMLError as error:
            return None, str(error)
        except Exception as error:
            # What the library lacks; older bindings raise NVMLError_FunctionNotFound instead.
            if type(error).__name__ != "NVMLLibraryMismatchError":
                raise
            return None, "N/A"

    def shown(self, form: Any, name: str, *arguments: Any) -> str:
        """A value as text, or why there is none."""
        value, error = self.ask(name, *arguments)
        return error or form(value)

    def count(self) -> int:
        return int(self.nvml.nvmlDeviceGetCount())

    def handle(self, index: int) -> Any:
        """The device. :raises NVMLError: when it cannot be opened."""
        return self.nvml.nvmlDeviceGetHandleByIndex(index)

    def instances(self, device: Any) -> List[Tuple[int, Any]]:
        """Number and handle of each MIG instance."""
        most, error = self.ask("nvmlDeviceGetMaxMigDeviceCount", device)
        found = []
        for slot in range(0 if error else most):
            instance, error = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", device, slot)
            if not error:
                found.append((slot, instance))
        return found


# --------------------------------------------------------------------------------------------------- answers


def _add(parent: ElementTree.Element, tag: str, text: object = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag)
    if text is not None:
        child.text = str(text)
    return child


def _switch(value: Any) -> str:
    return "Enabled" if value else "Disabled"


def _add_memory(gpus: Gpus, parent: ElementTree.Element, device: Any) -> None:
    usage = _add(parent, "fb_memory_usage")
    memory, error = gpus.ask("nvmlDeviceGetMemoryInfo", device, version=gpus.nvml.nvmlMemory_v2)
    parts = ("total", "reserved", "used", "free")
    if error == "N/A":
        memory, error = gpus.ask("nvmlDeviceGetMemoryInfo", device)
        parts = ("total", "used", "free")
    for part in parts:
        _add(usage, part, error or "{} MiB".format(getattr(memory, part) // _MIB))


def _add_processes(gpus: Gpus, parent: ElementTree.Element, device: Any) -> None:
    listing = _add(parent, "processes")
    letters: Dict[Tuple[int, Optional[int], Optional[int]], List[str]] = {}
    memory = {}
    for letter, name in (("M", "MPSCompute"), ("C", "Compute"), ("G", "Graphics")):
        rows, error = gpus.ask("nvmlDeviceGet{}RunningProcesses".format(name), device)
        if error and (letter == "C" or error != "N/A"):
            for child in list(listing):
                listing.remove(child)
            listing.text = error
            return
        for row in rows or []:
            key = row.pid, row.gpuInstanceId, row.computeInstanceId
            letters.setdefault(key, []).append(letter)
            memory[key] = row.usedGpuMemory
    for pid, *instance in sorted(letters):
        key = (pid, *instance)
        process = _add(listing, "process_info")
        for tag, number in zip(("gpu_instance_id", "compute_instance_id"), instance):
            _add(process, tag, "N/A" if number in (None, 0xFFFFFFFF) else number)
        _add(process, "pid", pid)
        _add(process, "type", "+".join(letters[key]))
        _add(process, "process_name", gpus.shown(_text, "nvmlSystemGetProcessName", pid))
        _add(process, "used_memory", "N/A" if memory[key] is None else "{} MiB".format(memory[key] // _MIB))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _recovery(values: Any) -> str:
    return "N/A" if values[0].nvmlReturn else _RECOVERY_WORDS[values[0].value.uiVal]


def _add_gpu(gpus: Gpus, log: ElementTree.Element, device: Any) -> ElementTree.Element:
    gpu = _add(log, "gpu")
    gpu.set("id", gpus.shown(lambda info: _text(info.busId), "nvmlDeviceGetPciInfo", device))
    _add(gpu, "product_name", gpus.shown(_text, "nvmlDeviceGetName", device))
    _add(gpu, "persistence_mode", gpus.shown(_switch, "nvmlDeviceGetPersistenceMode", device))
    _add(gpu, "addressing_mode", _addressing(gpus, device))
    mode = _add(gpu, "mig_mode")
    current = gpus.shown(lambda modes: _switch(modes[0]), "nvmlDeviceGetMigMode", device)
    _add(mode, "current_mig", current)
    _add(mode, "pending_mig", current)
    parts = _add(gpu, "mig_devices")
    instances = gpus.instances(device) if current == "Enabled" else []
    if not instances:
        parts.text = "\n\t\t\tNone\n\t\t"
    for slot, instance in instances:
        part = _add(parts, "mig_device")
        _add(part, "index", slot)
        _add(part, "gpu_instance_id", gpus.shown(str, "nvmlDeviceGetGpuInstanceId", instance))
        _add(part, "compute_instance_id", gpus.shown(str, "nvmlDeviceGetComputeInstanceId", instance))
        _add_memory(gpus, part, instance)
    _add(gpu, "serial", gpus.shown(_text, "nvmlDeviceGetSerial", device))
    _add(gpu, "uuid", gpus.shown(_text, "nvmlDeviceGetUUID", device))
    _add(gpu, "minor_number", gpus.shown(str, "nvmlDeviceGetMinorNumber", device))
    _add(gpu, "gpu_recovery_action", gpus.shown(_recovery, "nvmlDeviceGetFieldValues", device, [230]))
    _add_memory(gpus, gpu, device)
    _add_processes(gpus, gpu, device)
    return gpu


def _addressing(gpus: Gpus, device: Any) -> str:
    if not hasattr(gpus.nvml, "nvmlDeviceGetAddressingMode"):
        return "N/A"
    words = ("None", "HMM", "ATS")
    return gpus.shown(lambda mode: words[int(getattr(mode, "value", mode))], "nvmlDeviceGetAddressingMode", device)


def _change(gpu: ElementTree.Element, index: int) -> None:
    """What the rules want to be different."""
    for path, *text in _rules("set", index, "*"):
        for element in gpu.findall(path):
            for child in list(element):
                element.remove(child)
            element.text = "".join(text)
    for path, *_nothing in _rules("drop", index, "*"):
        above, _slash, tag = path.rpartition("/")
        parent = gpu.find(above) if above else gpu
        for element in parent.findall(tag) if parent is not None else []:
            parent.remove(element)


def _wanted(gpus: Gpus, selection: str) -> List[int]:
    """The indices of the GPUs that are selected; what names none is passed over, as nvidia-smi does."""
    everybody = list(range(gpus.count()))
    if not selection:
        return everybody
    names = [name.lower() for name in selection.split(",")]
    return [index for index in everybody if any(name in names for name in _names(index))]


def _names(index: int) -> Tuple[str, str, str]:
    settings = _settings(index)
    return str(index), settings.get("bus", "").lower(), settings.get("uuid", "").lower()


def _settings(index: int) -> Dict[str, str]:
    try:
        return fakegpu.gpu_settings(index)
    except ValueError:  # counted, and not there
        return {}


def query(selection: str = "") -> None:
    """``-q -x``, for the GPUs that a comma-separated list of indices, UUIDs and PCI bus ids names, or for all."""
    gpus = Gpus()
    wanted = _wanted(gpus, selection)
    if not wanted:
        _quit(6, "No devices were found")
    log = ElementTree.Element("nvidia_smi_log")
    _add(log, "timestamp", time.strftime("%a %b %d %H:%M:%S %Y"))
    _add(log, "driver_version", gpus.shown(_text, "nvmlSystemGetDriverVersion"))
    _add(log, "cuda_version", "13.0")
    _add(log, "attached_gpus", gpus.count())
    for index in wanted:
        _obey(index)
        if any(True for _rule in _rules("omit", index, "*")):
            continue
        try:
            device = gpus.handle(index)
        except gpus.nvml.NVMLError as error:
            bus = _settings(index).get("bus", "?")
            problem = "Unable to determine the device handle for GPU{}: {}: {}".format(index, bus, error)
            if len(wanted) == 1:
                _quit(error.value, problem)
            print(problem, file=sys.stderr)
            continue
        _change(_add_gpu(gpus, log, device), index)
    heading = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
    answer = heading.encode() + ElementTree.tostring(log) + b"\n"
    for size, *_rest in _rules("cut", "*"):
        answer = answer[: int(size)]
    sys.stdout.buffer.write(answer)


def listing() -> None:
    """``-L``."""
    gpus = Gpus()
    for index in range(gpus.count()):
        _obey(index)
        try:
            device = gpus.handle(index)
        except gpus.nvml.NVMLError as error:
            print("Unable to determine the device handle for gpu {}: {}".format(_settings(index).get("bus"), error))
            continue
        name = gpus.shown(_text, "nvmlDeviceGetName", device)
        print("GPU {}: {} (UUID: {})".format(index, name, gpus.shown(_text, "nvmlDeviceGetUUID", device)))
        for slot, instance in gpus.instances(device):
            uuid = gpus.shown(_text, "nvmlDeviceGetUUID", instance)
            print("  MIG 1g.18gb     Device {:2d}: (UUID: {})".format(slot, uuid))


def versions() -> None:
    """``--version``."""
    gpus = Gpus()
    driver = gpus.shown(_text, "nvmlSystemGetDriverVersion")
    nvml = ".".join(gpus.shown(_text, "nvmlSystemGetNVMLVersion").split(".")[1:3])
    print("NVIDIA-SMI version  : {0}\nNVML version        : {1}\nDRIVER version      : {0}".format(driver, nvml))


def main(arguments: Sequence[str]) -> None:
    words = list(arguments)
    try:
        _obey("*")
        for text in _rules("say", "*"):
            print(" ".join(text), flush=True)
    except FileNotFoundError:  # no host: NVML says so
        pass
    if words == ["-L"]:
        listing()
    elif words == ["--version"]:
        versions()
    elif words[:2] == ["-q", "-x"] and len(words) == 2:
        query()
    elif words[:3] == ["-q", "-x", "-i"] and len(words) == 4:
        query(words[3])
    else:
        _quit(255, "ERROR: Option {} is not recognized.".format(" ".join(words)))


if __name__ == "__main__":
    main(sys.argv[1:])
