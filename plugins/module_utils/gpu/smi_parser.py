# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `nvidia-smi -q -x` says about GPUs, as the same values that NVML's reader gives.

A figure that is not there becomes a Failure, as in nvml_reader.py: it is never filled in by a guess,
and a list that could not be read never passes for an empty one.

Source: the DTD that `nvidia-smi --dtd -q -x` prints, and answers of drivers 535 to 580.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple
from xml.etree import ElementTree

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors, smi_errors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.mig import DENIED, memory_together
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    COMPUTE,
    GRAPHICS,
    MPS,
    NVIDIA_SMI,
    NVIDIA_SMI_V1,
    UNKNOWN,
    Failure,
    GpuError,
    GpuIdentity,
    GpuReading,
    ListedProcess,
    MemoryReading,
    MigDevice,
    without_figures,
)

if TYPE_CHECKING:
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits

_OPENING = "<nvidia_smi_log"
_CLOSING = "</nvidia_smi_log>"
# Characters that XML does not allow.  A process name may contain them, and nvidia-smi passes them on.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_MIB = re.compile(r"([0-9]{1,12}) MiB")
_NUMBER = re.compile(r"[0-9]{1,12}")
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{8,80}")
_MIG_UUID = re.compile(r"MIG-[0-9A-Za-z/-]{8,80}")
_LIST_GPU = re.compile(r"GPU [0-9]+:.*\(UUID: (GPU-[^ )]+)\)\s*$")
_LIST_MIG = re.compile(r"\s+MIG .*Device\s+([0-9]+):.*\(UUID: (MIG-[^ )]+)\)\s*$")

# Each figure is rounded to MiB by itself; otherwise the parts add up to the total.
_SUM_TOLERANCE_MIB = 64

_MODES = {"enabled": "enabled", "disabled": "disabled"}
_ADDRESSING_MODES = {"none": "none", "hmm": "hmm", "ats": "ats"}
_RECOVERY_ACTIONS = {
    "none": "none",
    "reset": "reset",
    "gpu_reset": "reset",
    "reboot": "node_reboot",
    "node_reboot": "node_reboot",
    "drain_p2p": "drain_p2p",
    "drain_and_reset": "drain_and_reset",
    "recover_imex_domain": "recover_imex_domain",
    "imex_domain_recovery": "recover_imex_domain",
    "bus_reset": "bus_reset",
    "system_reboot": "system_reboot",
}
_VIRTUALIZATION = {
    "none": "none",
    "pass_through": "passthrough",
    "passthrough": "passthrough",
    "vgpu": "vgpu",
    "host_vgpu": "host_vgpu",
    "host_vsga": "host_vsga",
}
_FABRIC = {
    "": "not_supported",
    "n/a": "not_supported",
    "not_supported": "not_supported",
    "not_started": "not_started",
    "in_progress": "in_progress",
    "completed": "completed",
}
# "M+C" is an MPS client that is in both lists.  A kind that is new to us computes, for all we know.
_KINDS = {"C": COMPUTE, "G": GRAPHICS, "M": MPS}
# Errors that mean "there is no such property here".
_ABSENCES = frozenset([nvml_errors.NOT_SUPPORTED, nvml_errors.FUNCTION_NOT_FOUND])
# What the list of processes or of MIG instances may say instead of having entries.
_NOBODY = frozenset(["", "none", "no running processes found"])

MigLayout = Tuple[Tuple[int, int, int], ...]  # (number on its GPU, GPU instance, compute instance)


class SmiGpu:
    """The element of one GPU."""

    def __init__(self, element: ElementTree.Element) -> None:
        self._element = element

    @property
    def bus_id(self) -> str:
        """Its PCI bus id, or "" where even that is not said."""
        return self._element.get("id", "").strip()

    @property
    def mig_layout(self) -> MigLayout:
        """The MIG instances that are there, as far as they can be read."""
        try:
            return tuple(part.place for part in _mig_parts(self._element)) if self._mig_mode == "enabled" else ()
        except GpuError:
            return ()

    @property
    def uuid(self) -> str:
        """Its UUID, or "" where it is not said."""
        found = _UUID.fullmatch(_word(self._element, "uuid"))
        return found.group() if found else ""

    def reading(self, index: int, pid_max: int, mig_uuids: Optional[Mapping[int, str]] = None) -> GpuReading:
        """All of it as a reading of the GPU with this NVML index.  Never raises.

        mig_uuids: the UUIDs of MIG instances by their number on this GPU; only `nvidia-smi -L` tells them.
        """
        try:
            identity = self._identity(index)
        except GpuError as exc:
            return GpuReading(index, failure=exc.failure)
        memory: Optional[MemoryReading] = None
        processes: Tuple[ListedProcess, ...] = ()
        mig: Tuple[MigDevice, ...] = ()
        processes_read = False
        failure: Optional[Failure] = None
        try:
            if self._mig_mode == "enabled":
                mig = tuple(part.device(mig_uuids or {}) for part in _mig_parts(self._element))
            try:
                memory = _memory_of_gpu(self._element, mig)
            except GpuError as exc:
                if exc.failure.code != "not_supported":
                    raise
                failure = without_figures(exc.failure)
            processes = _processes(self._element, pid_max)
            processes_read = True
        except GpuError as exc:
            failure = exc.failure
        return GpuReading(
            index,
            identity=identity,
            memory=memory,
            processes=processes,
            persistence_mode=_choice(_word(self._element, "persistence_mode"), _MODES),
            mig_mode=self._mig_mode,
            recovery_action=_choice(_word(self._element, "gpu_recovery_action"), _RECOVERY_ACTIONS),
            addressing_mode=_choice(_word(self._element, "addressing_mode"), _ADDRESSING_MODES),
            mig_devices=mig,
            processes_read=processes_read,
            failure=failure,
        )

    def traits(self, index: int) -> GpuTraits:
        """What decides how it may be reset.  This answer does not tell where its NVLinks lead."""
        from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_traits

        fabric = _word(self._element, "fabric/state").lower().replace(" ", "_")
        return reset_traits.GpuTraits(
            index=index,
            architecture=reset_traits.architecture_named(_word(self._element, "product_architecture")),
            virtualization=_choice(
                _word(self._element, "gpu_virtualization_mode/virtualization_mode"), _VIRTUALIZATION
            ),
            display=_choice(_word(self._element, "display_active"), _MODES),
            fabric=_FABRIC.get(fabric, UNKNOWN),
        )

    @property
    def _mig_mode(self) -> str:
        return _choice(_word(self._element, "mig_mode/current_mig"), _MODES)

    def _identity(self, index: int) -> GpuIdentity:
        name = _text(self._element, "product_name", "its name")
        if smi_errors.code_in(name) is not None:
            raise GpuError(smi_errors.value_failure(name, "its name"))
        if not self.uuid:
            raise GpuError(smi_errors.value_failure(_text(self._element, "uuid", "its UUID"), "its UUID"))
        if not self.bus_id:
            raise GpuError(smi_errors.output_failure("does not say the PCI bus id of a GPU"))
        return GpuIdentity(index, self.uuid, self.bus_id, self._minor(), name)

    def _minor(self) -> Optional[int]:
        text = _text(self._element, "minor_number", "its minor number")
        if smi_errors.code_in(text) == nvml_errors.NOT_SUPPORTED:  # WSL has no device nodes
            return None
        return _number(text, "its minor number")


@dataclass(frozen=True)
class Report:
    """One answer.  attached counts the host's GPUs, also those that the answer leaves out."""

    driver_version: str
    attached: int
    gpus: Tuple[SmiGpu, ...]


def parse(output: bytes) -> Report:
    """The answer behind the bytes.  Raises GpuError where they are none.

    Everything before and after the one element that matters is cut away: messages that nvidia-smi
    writes in between, and the document type, with which no entity can come in either.
    """
    text = output.decode("utf-8", "replace")
    start, end = text.find(_OPENING), text.rfind(_CLOSING)
    if start < 0 or end < start:
        raise GpuError(smi_errors.output_failure("gave no complete XML answer"))
    try:
        root = ElementTree.fromstring(_NOT_XML.sub("\ufffd", text[start : end + len(_CLOSING)]))
    except (ElementTree.ParseError, ValueError) as exc:
        raise GpuError(smi_errors.output_failure("gave XML that is not well-formed: %s" % exc)) from exc
    return Report(
        driver_version=_word(root, "driver_version"),
        attached=_number(_text(root, "attached_gpus", "the number of GPUs"), "the number of GPUs"),
        gpus=tuple(SmiGpu(element) for element in root.findall("gpu")),
    )


def parse_mig_uuids(listing: str) -> Dict[str, Dict[int, str]]:
    """From `nvidia-smi -L`: the UUIDs of MIG instances, by the GPU's UUID and their number on it."""
    found: Dict[str, Dict[int, str]] = {}
    gpu: Dict[int, str] = {}
    for line in listing.splitlines():
        heading, part = _LIST_GPU.match(line), _LIST_MIG.match(line)
        if heading:
            gpu = found.setdefault(heading.group(1), {})
        elif part:
            gpu[int(part.group(1))] = part.group(2)
        elif not line[:1].isspace():  # a GPU that it could not open: what follows belongs to nobody we know
            gpu = {}
    return found


def parse_versions(text: str) -> Dict[str, str]:
    """From `nvidia-smi --version`: "nvml" and "driver", as far as it says them."""
    pairs = (line.partition(":") for line in text.splitlines())
    named = {name.strip().lower(): value.strip() for name, _colon, value in pairs}
    return {word: named[word + " version"] for word in ("nvml", "driver") if named.get(word + " version")}


# -- memory


def _memory_of_gpu(element: ElementTree.Element, mig: Sequence[MigDevice]) -> MemoryReading:
    """The memory of a whole GPU; where that is denied, what its MIG instances have together."""
    try:
        return _memory(element, "its memory")
    except GpuError as exc:
        together = memory_together(mig) if exc.failure.code in DENIED else None
        if together is None:
            raise
        return together


def _memory(element: ElementTree.Element, what: str) -> MemoryReading:
    usage = _only(element, "fb_memory_usage", what)
    total, used, free = (
        _mib(_text(usage, part, "%s of %s" % (what, part)), "%s (%s)" % (what, part))
        for part in ("total", "used", "free")
    )
    # Drivers before 510 have no such element, and then count what they reserve as used.
    said = _word(usage, "reserved")
    absent = not said or smi_errors.code_in(said) == nvml_errors.NOT_SUPPORTED
    reserved = None if absent else _mib(said, "%s (reserved)" % what)
    if total < 1:
        raise GpuError(
            Failure("no_memory_figures", "The driver reports a total memory of 0 MiB", "Check with nvidia-smi")
        )
    parts = used + free + (reserved or 0)
    if abs(total - parts) > _SUM_TOLERANCE_MIB:
        raise GpuError(
            Failure(
                "inconsistent_memory",
                "The driver's memory figures do not add up (total %d MiB, parts %d MiB)" % (total, parts),
                "Run the task again; if it stays, check with nvidia-smi -q",
            )
        )
    return MemoryReading(total, used, reserved, NVIDIA_SMI_V1 if reserved is None else NVIDIA_SMI)


# -- MIG instances


@dataclass(frozen=True)
class _MigPart:
    """One MIG instance: where it is, what it has, and its UUID where this driver says it here."""

    place: Tuple[int, int, int]
    memory: Optional[MemoryReading]
    uuid: str

    def device(self, uuids: Mapping[int, str]) -> MigDevice:
        number, gpu_instance, compute_instance = self.place
        return MigDevice(self.uuid or uuids.get(number, ""), gpu_instance, compute_instance, self.memory)


def _mig_parts(element: ElementTree.Element) -> List[_MigPart]:
    what = "its MIG instances"
    listed = _only(element, "mig_devices", what)
    found = []
    for row in _rows(listed, "mig_device", what):
        memory: Optional[MemoryReading] = None
        try:
            memory = _memory(row, "the memory of a MIG instance")
        except GpuError as exc:
            if exc.failure.code not in DENIED:
                raise
        number, gpu_instance, compute_instance = (
            _number(_text(row, tag, what), what) for tag in ("index", "gpu_instance_id", "compute_instance_id")
        )
        uuid = _MIG_UUID.fullmatch(_word(row, "uuid"))
        found.append(_MigPart((number, gpu_instance, compute_instance), memory, uuid.group() if uuid else ""))
    return found


# -- processes


def _processes(element: ElementTree.Element, pid_max: int) -> Tuple[ListedProcess, ...]:
    what = "its processes"
    found: List[ListedProcess] = []
    for row in _rows(_only(element, "processes", what), "process_info", what):
        pid = _number(_text(row, "pid", "the PID of a process"), "the PID of a process")
        if pid <= 1 or pid > pid_max:
            raise GpuError(
                Failure(
                    "implausible_pid",
                    "The driver's list of processes contains the impossible PID %d" % pid,
                    "nvidia-smi and the driver do not fit (known of driver 535.43 to 535.86); upgrade the driver",
                    permanent=True,
                )
            )
        memory = _MIB.fullmatch(_word(row, "used_memory"))
        for kind in _kinds(_text(row, "type", "the type of a process")):
            found.append(
                ListedProcess(
                    pid=pid,
                    kind=kind,
                    memory_mib=int(memory.group(1)) if memory else None,
                    gpu_instance=_instance(_word(row, "gpu_instance_id")),
                    compute_instance=_instance(_word(row, "compute_instance_id")),
                )
            )
    return tuple(sorted(found, key=lambda p: (p.pid, p.kind, p.gpu_instance or 0, p.compute_instance or 0)))


def _kinds(text: str) -> List[str]:
    return sorted({_KINDS.get(letter.strip(), COMPUTE) for letter in text.split("+")})


def _instance(text: str) -> Optional[int]:
    return int(text) if _NUMBER.fullmatch(text) else None


# -- elements and texts


def _only(parent: ElementTree.Element, tag: str, what: str) -> ElementTree.Element:
    """The one child of this name.  Two would mean that we do not understand the answer."""
    found = parent.findall(tag)
    if len(found) != 1:
        raise GpuError(smi_errors.output_failure("says %s %d times, not once" % (what, len(found))))
    return found[0]


def _rows(parent: ElementTree.Element, tag: str, what: str) -> List[ElementTree.Element]:
    """The entries of a list.  Raises GpuError where it has none and says something else than that there are none."""
    rows = list(parent)
    if any(row.tag != tag for row in rows):
        raise GpuError(smi_errors.output_failure("says %s in a form that is not known" % what))
    said = (parent.text or "").strip()
    if not rows and said.lower() not in _NOBODY:
        raise GpuError(smi_errors.value_failure(said, what))
    return rows


def _text(parent: ElementTree.Element, path: str, what: str) -> str:
    return (_only(parent, path, what).text or "").strip()


def _word(parent: ElementTree.Element, path: str) -> str:
    """The text of an element that may be missing ("")."""
    found = parent.find(path)
    return (found.text or "").strip() if found is not None else ""


def _mib(text: str, what: str) -> int:
    found = _MIB.fullmatch(text)
    if found is None:
        raise GpuError(smi_errors.value_failure(text, what))
    return int(found.group(1))


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise GpuError(smi_errors.value_failure(text, what))
    return int(text)


def _choice(text: str, names: Mapping[str, str]) -> str:
    """A property that is for information: an error is told, not raised.  An old driver leaves it out."""
    word = re.sub("[^a-z0-9]+", "_", text.lower()).strip("_")
    if word in names:
        return names[word]
    return "not_supported" if not text or smi_errors.code_in(text) in _ABSENCES else UNKNOWN
