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

It also resets GPUs (``--gpu-reset``, ``-r``, ``-r bus``, with ``-i ID[,ID...]``) and switches persistence mode (``-pm
0|1 -i ID``). A reset is refused as the tool documents it: without root; in a guest; while anybody holds memory of the
GPU or has its node open; in persistence mode; and where GPUs have to be reset together and some are not named. What
makes it refuse or fail besides:

``smi drm *``                        the module nvidia_drm holds every GPU
``smi fabricmanager *``              the fabric manager runs, so that Ampere on NVSwitches is reset one by one
``smi reset GPU|* [N] OUTCOME``      the reset of the GPU (only the first N of them): ``busy``, ``unsupported``, ``fail
                                     [TEXT]``, ``hang SECONDS|forever``, ``raise ACTION`` (done, and the driver wants
                                     this recovery action next), ``lost`` (done, and the GPU is gone)
``smi pm GPU|* [N] fail``            its persistence mode cannot be changed

A GPU that was reset wants no recovery action, uses no memory, and answers again. Each run that changes something is
noted in ``$FAKEGPU_DIR/smi_calls``.

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

_GUEST = ("None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA")
_FABRIC = ("N/A", "Not Started", "In Progress", "Completed")
_GENERATIONS = ((100, "Blackwell"), (90, "Hopper"), (89, "Ada Lovelace"), (80, "Ampere"), (75, "Turing"), (70, "Volta"))
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
    _add(gpu, "product_architecture", gpus.shown(_generation, "nvmlDeviceGetCudaComputeCapability", device))
    _add(gpu, "display_active", gpus.shown(_switch, "nvmlDeviceGetDisplayActive", device))
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
    guest = _add(gpu, "gpu_virtualization_mode")
    _add(guest, "virtualization_mode", gpus.shown(_GUEST.__getitem__, "nvmlDeviceGetVirtualizationMode", device))
    _add(gpu, "serial", gpus.shown(_text, "nvmlDeviceGetSerial", device))
    _add(gpu, "uuid", gpus.shown(_text, "nvmlDeviceGetUUID", device))
    _add(gpu, "minor_number", gpus.shown(str, "nvmlDeviceGetMinorNumber", device))
    _add(gpu, "gpu_recovery_action", gpus.shown(_recovery, "nvmlDeviceGetFieldValues", device, [230]))
    _add_memory(gpus, gpu, device)
    _add_processes(gpus, gpu, device)
    return gpu


def _generation(capability: Any) -> str:
    number = capability[0] * 10 + capability[1]
    return next((name for since, name in _GENERATIONS if number >= since), "Pascal")


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
        gpu = _add_gpu(gpus, log, device)
        _add(_add(gpu, "fabric"), "state", _FABRIC[int(_settings(index).get("fabric", 0))])
        _change(gpu, index)
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


# --------------------------------------------------------------------------------------------------- changing


class _Refused(Exception):
    """Why one GPU is not reset: the words of nvidia-smi, and its exit status."""

    def __init__(self, words: str, code: int = 255) -> None:
        super().__init__(words)
        self.code = code


def _note(words: Sequence[str]) -> None:
    with open(str(fakegpu.folder() / "smi_calls"), "a") as calls:
        calls.write(" ".join(words) + "\n")


def _wishes(kind: str, index: int) -> Iterator[List[str]]:
    """The outcomes that rules want for this run, each as its words; a rule with a number counts its runs."""
    for number, words in enumerate(list(_rules(kind, index, "*"))):
        text = " ".join(words).split()
        if text and text[0].isdigit():
            counter = fakegpu.folder() / "calls" / "smi.{}.{}.{}".format(kind, index, number)
            done = int(counter.read_text()) if counter.exists() else 0
            counter.write_text(str(done + 1))
            if done >= int(text[0]):
                continue
            text = text[1:]
        yield text


def _peers(index: int) -> List[str]:
    """The bus ids of the GPUs that have to be reset together with this one."""
    settings = _settings(index)
    ends = [end for end in settings.get("links", "").split(",") if end]
    capability = int(settings.get("capability", 90))
    if not ends or capability >= 90:
        return []
    if capability >= 80 and ("switch" not in ends or any(True for _rule in _rules("fabricmanager", "*"))):
        return []
    if "switch" in ends:
        ends = [gpu["bus"] for gpu in _everybody() if "switch" in gpu.get("links", "").split(",")]
    return sorted(end.lower() for end in ends if end != "down")


def _everybody() -> List[Dict[str, str]]:
    return [_settings(index) for index in range(64) if _settings(index)]


def _in_use(index: int) -> bool:
    """Whether anybody holds the GPU: with memory, by its open node, in persistence mode, or through the module."""
    settings = _settings(index)
    if settings.get("persistence") == "1" or any(True for _rule in _rules("drm", "*")):
        return True
    if any(row["gpu"] == index and not row["releasing"] for row in fakegpu.observe()):
        return True
    node = str(fakegpu.device_folder() / ("nvidia" + settings["minor"]))
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(str(file)) == node:
                return True
        except OSError:
            continue
    return False


def _reset_one(index: int, named: Sequence[str]) -> None:
    """Reset one GPU. :raises _Refused: where it is not."""
    settings = _settings(index)
    if settings.get("virtualization", "0") in ("1", "2"):
        raise _Refused("Not Supported", 3)
    missing = [bus for bus in _peers(index) if bus not in named and bus != settings["bus"].lower()]
    if missing:
        raise _Refused("NVLink peers have to be reset by the same command: " + ", ".join(missing).upper())
    if _in_use(index):
        raise _Refused("In use by another client")
    after: Dict[str, object] = {"recovery": 0, "base": 0}
    gone = False
    for outcome, *more in _wishes("reset", index):
        if outcome == "busy":
            raise _Refused("In use by another client")
        if outcome == "unsupported":
            raise _Refused("Not Supported", 3)
        if outcome == "fail":
            raise _Refused(" ".join(more) or "Unknown Error")
        if outcome == "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            time.sleep(3600.0 if more[0] == "forever" else float(more[0]))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        if outcome == "raise":
            after["recovery"] = more[0]
        gone = gone or outcome == "lost"
    _forget_faults(index)
    fakegpu.set_gpu(index, **after)
    if gone:
        fakegpu.fail("nvmlDeviceGetHandleByIndex*", index, 15)


def _forget_faults(index: int) -> None:
    """What was wrong with the GPU is over, and nobody is listed any more."""
    with fakegpu.edit() as lines:
        lines[:] = [line for line in lines if not _is_fault(line.split(), str(index))]


def _is_fault(words: Sequence[str], index: str) -> bool:
    return (words[:1] == ["proc"] and words[1] == index) or (words[0] in ("fail", "hang") and words[2] == index)


def reset(words: Sequence[str]) -> None:
    """``--gpu-reset`` and ``-r``."""
    _note(words)
    words = list(words)
    selection = ""
    if "-i" in words:
        position = words.index("-i")
        selection = words[position + 1]
        del words[position : position + 2]
    if words not in (["--gpu-reset"], ["-r"], ["-r", "bus"]):
        _quit(255, "ERROR: Option {} is not recognized.".format(" ".join(words)))
    if os.geteuid():
        _quit(4, "Unable to reset the GPUs: Insufficient Permissions")
    gpus = Gpus()
    wanted = _wanted(gpus, selection)
    gpus.nvml.nvmlShutdown()
    if not wanted:
        _quit(6, "No devices were found")
    named = [_settings(index)["bus"].lower() for index in wanted]
    done, refused, code = [], [], 0
    for index in wanted:
        bus = _settings(index)["bus"]
        try:
            _reset_one(index, named)
            done.append("GPU {} was successfully reset.".format(bus))
        except _Refused as exc:
            refused.append("  GPU {}: {}".format(bus, exc))
            code = exc.code
    if done:
        print("\n".join(done))
    if refused:
        print("The following GPUs could not be reset:\n" + "\n".join(refused))
    if any("In use" in line for line in refused):
        print("\n{} device is used by a process, perhaps a daemon or another nvidia-smi.".format(len(refused)))
    _quit(code, "" if refused else "All done.")


def persistence(words: Sequence[str]) -> None:
    """``-pm 0|1 -i ID``."""
    _note(words)
    mode, selection = words[1], words[3]
    if os.geteuid():
        _quit(4, "Unable to set persistence mode: Insufficient Permissions")
    wanted = _wanted(Gpus(), selection)
    if not wanted or mode not in ("0", "1"):
        _quit(6, "No devices were found")
    for index in wanted:
        bus = _settings(index)["bus"]
        if any(wish == ["fail"] for wish in _wishes("pm", index)):
            _quit(255, "Unable to set persistence mode for GPU {}: Unknown Error".format(bus))
        fakegpu.set_gpu(index, persistence=mode)
        print("{} persistence mode for GPU {}.".format("Enabled" if mode == "1" else "Disabled", bus))
    print("All done.")


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
    elif words[:1] in (["--gpu-reset"], ["-r"]):
        reset(words)
    elif words[:1] == ["-pm"] and words[2:3] == ["-i"] and len(words) == 4:
        persistence(words)
    else:
        _quit(255, "ERROR: Option {} is not recognized.".format(" ".join(words)))


if __name__ == "__main__":
    main(sys.argv[1:])
