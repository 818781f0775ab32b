# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads GPUs through nvidia-smi, where there is no Python binding for NVML.

Like an NVML session, with two differences: nothing stays open between readings, and one run of the
tool, which takes about a tenth of a second for each GPU, answers for several GPUs together.  Where
such a run fails, each GPU is asked about alone, so that the sick one is named and the others are read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors, smi_errors, smi_parser
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuError,
    GpuReading,
    SystemInfo,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.session_memory import (
    KnownGpus,
    Silences,
    count_changed,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_runner import Answer, Hung, Leftover, NvidiaSmi

if TYPE_CHECKING:
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits

# GPUs that are tried at the start, to learn from one of them how many there are.
_FIRST_ONES = 3
_QUERY = ("-q", "-x")

_TOGETHER = "several"
_LIST = "list"
_VERSIONS = "versions"

# Failures of the driver as a whole: asking about one GPU alone cannot help.
_EVERYWHERE = frozenset(
    ["driver_not_loaded", "library_not_found", "library_mismatch", "nvidia_smi_missing", "no_process", "count_changed"]
)
_HUNG = "hung"


class SmiSession:
    """Reads GPUs by index.  Use it as a context manager; raises GpuError where nvidia-smi cannot be used.

    timeout is in seconds, for one run of the tool; pid_max is the kernel's largest PID.
    """

    reader = "nvidia_smi"

    def __init__(
        self,
        tool: NvidiaSmi,
        timeout: float,
        pid_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tool = tool
        self._timeout = timeout
        self._pid_max = pid_max
        self._leftovers: Dict[str, Leftover] = {}
        self._silences = Silences(clock)
        # GPUs that failed when asked about last: they would make a run for several fail again.
        self._apart: Set[int] = set()
        self._known = KnownGpus()
        self._mig_uuids: Dict[str, Dict[int, str]] = {}
        self._listed: Set[Tuple[str, smi_parser.MigLayout]] = set()
        self.system: SystemInfo = self._start()

    def __enter__(self) -> SmiSession:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def pids(self) -> FrozenSet[int]:
        """The processes of this session that could not be ended: none of them is a holder to be reported.

        Those that have ended are not among them, since their PIDs may be somebody else's by now.
        """
        self.close()
        return frozenset(leftover.pid for leftover in self._leftovers.values())

    def identify(self, indices: Sequence[int]) -> Tuple[GpuReading, ...]:
        """Which GPUs these are: readings without memory and processes."""
        return self._query(indices, values=False)

    def read(self, indices: Sequence[int]) -> Tuple[GpuReading, ...]:
        """The GPUs as they are now, one reading each, in the order asked.  Never raises.

        A GPU that hangs takes `timeout` seconds twice at first (with the others, then alone), later once,
        and nothing while it is left alone.
        """
        return self._query(indices, values=True)

    def traits(self, indices: Sequence[int]) -> Tuple[GpuTraits, ...]:
        """What decides how these GPUs may be reset.  Never raises: what cannot be learnt stays unknown.

        Where their NVLinks lead is never known here.
        """
        from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_traits

        found = []
        for index in indices:
            traits = reset_traits.GpuTraits(index)
            if self._silences.about(_alone(index)) is None:
                try:
                    report = self._report(_alone(index), ["-i", self._name(index)], "asking for GPU %d" % index)
                    if len(report.gpus) == 1:
                        traits = report.gpus[0].traits(index)
                except GpuError:
                    pass
            found.append(traits)
        return tuple(found)

    def close(self) -> None:
        """Forget the processes that have ended meanwhile; takes no time."""
        self._leftovers = {key: leftover for key, leftover in self._leftovers.items() if not leftover.gone()}

    # -- GPUs

    def _query(self, indices: Sequence[int], values: bool) -> Tuple[GpuReading, ...]:
        readings: Dict[int, GpuReading] = {}
        together = []
        for index in sorted(set(indices)):
            silent = self._silences.about(_alone(index))
            if silent is not None:
                readings[index] = self._known.failed(index, silent)
            elif index not in self._apart:
                together.append(index)
        if len(together) > 1 and self._silences.about(_TOGETHER) is None:
            readings.update(self._read_together(together, values))
        for index in indices:
            if index not in readings:
                readings[index] = self._read_alone(index, values)
        if self._apart.intersection(together):  # what made the run for several fail is left out of the next
            self._silences.end(_TOGETHER)
        return tuple(readings[index] for index in indices)

    def _read_together(self, indices: Sequence[int], values: bool) -> Dict[int, GpuReading]:
        """The readings of those of these GPUs that one run tells of."""
        everybody = len(indices) == self.system.count
        selection = [] if everybody else ["-i", ",".join(self._name(index) for index in indices)]
        try:
            report = self._report(_TOGETHER, selection, "reading %d GPUs" % len(indices))
        except GpuError as exc:
            if exc.failure.code in _EVERYWHERE:
                return {index: self._known.failed(index, exc.failure) for index in indices}
            self._silences.begin(_TOGETHER, exc.failure)
            return {}
        self._silences.end(_TOGETHER)
        if len(report.gpus) == len(indices):  # they are listed in the order of their indices
            found = dict(zip(indices, report.gpus))
        else:
            by_bus = {gpu.bus_id: gpu for gpu in report.gpus}
            known = {index: self._known.get(index) for index in indices}
            buses = {index: identity.pci_bus_id for index, identity in known.items() if identity is not None}
            found = {index: by_bus[bus] for index, bus in buses.items() if bus in by_bus}
        return {index: self._reading(index, gpu, values) for index, gpu in found.items()}

    def _read_alone(self, index: int, values: bool) -> GpuReading:
        doing = "%s GPU %d" % ("reading" if values else "opening", index)
        key = _alone(index)
        self._apart.add(index)
        try:
            report = self._report(key, ["-i", self._name(index)], doing)
            if len(report.gpus) != 1:
                raise GpuError(smi_errors.output_failure("told of %d GPUs while %s" % (len(report.gpus), doing)))
        except GpuError as exc:
            if exc.failure.code == _HUNG:
                self._silences.begin(key, exc.failure)
            else:
                self._silences.end(key)
            return self._known.failed(index, exc.failure)
        self._silences.end(key)
        self._apart.discard(index)
        return self._reading(index, report.gpus[0], values)

    def _name(self, index: int) -> str:
        """What to call a GPU towards the tool: its PCI bus id stays when others appear or disappear."""
        known = self._known.get(index)
        return known.pci_bus_id if known is not None else str(index)

    def _reading(self, index: int, gpu: smi_parser.SmiGpu, values: bool) -> GpuReading:
        reading = self._known.same(gpu.reading(index, self._pid_max, self._uuids_of_instances(gpu)))
        if values or reading.identity is None:
            return reading
        if reading.failure is not None and reading.failure.code == "identity_changed":
            return reading
        return GpuReading(index, identity=reading.identity)

    def _uuids_of_instances(self, gpu: smi_parser.SmiGpu) -> Mapping[int, str]:
        """The UUIDs of a GPU's MIG instances, which take a run of their own once they are others than before."""
        layout = gpu.mig_layout
        if layout and (gpu.uuid, layout) not in self._listed:
            self._listed.add((gpu.uuid, layout))  # also where it fails: a sick GPU must not cost that time again
            try:
                self._mig_uuids.update(smi_parser.parse_mig_uuids(self._ask(_LIST, ["-L"], "listing").words))
            except GpuError:  # then they have no UUIDs, which is for information
                pass
        return self._mig_uuids.get(gpu.uuid, {})

    # -- runs of the tool

    def _start(self) -> SystemInfo:
        """How many GPUs there are, from the first that answers; the others are left alone.  Raises GpuError."""
        doing = "starting nvidia-smi"
        failures: List[Failure] = []
        for index in range(_FIRST_ONES):
            try:
                return self._system(_alone(index), ["-i", str(index)], doing)
            except GpuError as exc:
                failures.append(exc.failure)
                self._apart.add(index)
                if exc.failure.code == _HUNG:
                    self._silences.begin(_alone(index), exc.failure)
            hangs = sum(failure.code == _HUNG for failure in failures)
            if failures[-1].code in _EVERYWHERE or hangs > 1:
                raise GpuError(failures[-1])
        telling = [failure for failure in failures if failure.code != "not_found"]
        if any(failure.code == _HUNG for failure in telling):  # a run for all would meet that GPU again
            raise GpuError(telling[0])
        try:
            return self._system(_TOGETHER, [], doing)
        except GpuError as exc:
            if telling or exc.failure.code != "not_found":
                raise GpuError(telling[0] if telling else exc.failure) from None
        versions = self._versions()
        return SystemInfo(versions.get("driver", ""), versions.get("nvml", ""), 0)

    def _system(self, key: str, selection: Sequence[str], doing: str) -> SystemInfo:
        report = _report_in(self._ask(key, [*_QUERY, *selection], doing), doing)
        return SystemInfo(report.driver_version, self._versions().get("nvml", ""), report.attached)

    def _versions(self) -> Dict[str, str]:
        try:
            return smi_parser.parse_versions(self._ask(_VERSIONS, ["--version"], "asking for versions").words)
        except GpuError:  # they are for information
            return {}

    def _report(self, key: str, selection: Sequence[str], doing: str) -> smi_parser.Report:
        report = _report_in(self._ask(key, [*_QUERY, *selection], doing), doing)
        if report.attached != self.system.count:
            raise GpuError(count_changed(self.system.count, report.attached))
        return report

    def _ask(self, key: str, arguments: Sequence[str], doing: str) -> Answer:
        """One run.  While one with the same key is stuck, there is no other.  Raises GpuError."""
        stuck = self._leftovers.get(key)
        if stuck is not None and not stuck.gone():
            raise GpuError(nvml_errors.hung(doing, self._timeout))
        self._leftovers.pop(key, None)
        try:
            return self._tool.ask(arguments, self._timeout)
        except Hung as exc:
            if exc.leftover is not None:
                self._leftovers[key] = exc.leftover
            raise GpuError(nvml_errors.hung(doing, self._timeout)) from exc


def _report_in(answer: Answer, doing: str) -> smi_parser.Report:
    """The report in an answer.  Raises GpuError with what the tool says, where it says something else."""
    try:
        return smi_parser.parse(answer.output)
    except GpuError:
        # Its own words stand on lines of their own, also in the middle of an answer that it broke off.
        words = "\n".join(line for line in answer.words.splitlines() if "<" not in line)
        if answer.status == 0 and smi_errors.code_in(words) is None:
            raise
        raise GpuError(smi_errors.exit_failure(answer.status, words, doing)) from None


def _alone(index: int) -> str:
    return "GPU %d" % index
