# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a server died, read from the end of its log: a table of patterns, no I/O.

When one rank of a server fails, all others fail after it for other reasons.  So the order of the
table decides, not the order of the lines: what is usually a cause stands above what is usually a
consequence, and within one reason the first line counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Pattern, Sequence, Tuple

# Exit statuses of a process that was ended by SIGKILL: the shell's way, and subprocess's.
_KILLED_STATUSES = (137, -9)


@dataclass(frozen=True)
class FailureReason:
    """A classified failure.

    code is stable and meant for programs; sentence and remedy are for people; line is the line of the
    log that shows it, or "" where none does.
    """

    code: str
    sentence: str
    remedy: str
    line: str = ""

    def message(self) -> str:
        """Sentence, line and remedy as one text."""
        shown = " The log says: %s." % self.line.rstrip(".") if self.line else ""
        return "%s%s %s" % (self.sentence, shown, self.remedy)


@dataclass(frozen=True)
class _Rule:
    code: str
    pattern: Pattern[str]
    sentence: str
    remedy: str


# What stands before the text of a line: SGLang's time stamp with the rank ("[2026-01-02 03:04:05 TP0] "), and
# the marks of a level.  Exceptions are matched only at the start of the rest: SGLang also logs harmless ones
# in the middle of a line ("... disabled: init failed (ModuleNotFoundError: ...)").
_START = r"^(?:\[[^\]]*\]\s*)?(?:(?:ERROR|INFO|WARNING|CRITICAL):?\s+)?"


def _rule(code: str, pattern: str, sentence: str, remedy: str) -> _Rule:
    return _Rule(code, re.compile(pattern.replace("<start>", _START), re.IGNORECASE), sentence, remedy)


_RULES: Tuple[_Rule, ...] = (
    _rule(
        "memory_unbalanced",
        r"memory capacity is unbalanced",
        "One GPU had less free memory than the others when the server started.",
        "Another process still holds memory of it: see gpu_info, and let gpu_wait_free pass before the start.",
    ),
    _rule(
        "draft_mismatch",
        r"size mismatch for |<start>.*(?:shape mismatch|mat1 and mat2 shapes cannot be multiplied)"
        r"|aux[_ ]hidden[_ ]states?.*(?:mismatch|expected|shape)|(?:mismatch|expected|shape).*aux[_ ]hidden[_ ]states?"
        r"|eagle.{0,200}layer.?ids?.{0,200}(?:mismatch|out of range)",
        "The draft model does not fit the target model.",
        "Use the draft model that was trained for exactly this target, with its hidden size and layers.",
    ),
    _rule(
        "out_of_memory",
        r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAllocation"
        r"|CUBLAS_STATUS_ALLOC_FAILED",
        "A GPU ran out of memory.",
        "Lower mem_fraction_static, max_running_requests or the number of draft tokens, or free the GPU of others.",
    ),
    _rule(
        "not_enough_memory",
        r"not enough memory.*mem[-_]fraction[-_]static|leave no GPU memory for the KV cache"
        r"|<start>(?:RuntimeError|ValueError): not enough memory",
        "The memory that mem_fraction_static grants does not suffice for the weights and a KV cache.",
        "Raise mem_fraction_static or use more GPUs; if other processes hold memory of the GPUs, free it first.",
    ),
    _rule(
        "port_in_use",
        r"address already in use|port \d+ is (?:already )?(?:in use|occupied|not available|unavailable)",
        "A port that the server needs is taken.",
        "End what listens there (ss -ltnp shows it), or give another port.",
    ),
    _rule(
        "draft_not_found",
        r"draft.{0,80}(?:not found|does not exist|no such file)"
        r"|(?:no such file|not found|incorrect path).{0,200}(?:draft|eagle)"
        r"|speculative_draft_model_path.{0,40}(?:None|required|must be)",
        "The draft model was not found.",
        "Correct speculative_draft_model_path: it must be a folder on this host that the server's user may read.",
    ),
    _rule(
        "model_not_found",
        r"Repo id must (?:be|use)|is not a (?:local folder|valid model identifier)|not the path to a directory"
        r"|(?:LocalEntryNotFound|RepositoryNotFound|HFValidation)Error|couldn't connect to .*huggingface"
        r"|No such file or directory: '[^']*(?:config\.json|\.safetensors|tokenizer[^']*)'"
        r"|(?:cannot|can't) find (?:any )?(?:the )?(?:model|config)|Cannot find any model weights"
        r"|Unrecognized model in|does not appear to have a file named",
        "The model, its tokenizer or a part of it was not found.",
        "Correct model_path: it must be a complete model folder on this host that the server's user may read.",
    ),
    _rule(
        "graph_capture_failed",
        r"capture (?:cuda|draft|npu)?\s*graph failed|cuda graph capture failed"
        r"|operation not permitted when stream is capturing",
        "Capturing CUDA graphs failed.",
        "Lower cuda-graph-max-bs or mem_fraction_static; --disable-cuda-graph shows whether graphs are the cause.",
    ),
    _rule(
        "bad_argument",
        r"^[^\s:]+(?: serve)?: error: "
        r"|error: (?:unrecognized arguments|argument --|the following arguments are required)"
        r"|<start>ValueError: Unknown speculative algorithm|<start>ValueError: .*not in the adaptive config",
        "SGLang refused its arguments.",
        "Correct the option that the log names; sglang_preflight with parser=required finds it before the start.",
    ),
    _rule(
        "driver_error",
        r"no CUDA-capable device|driver version is insufficient|driver .*too old|CUDA driver initialization failed"
        r"|Found no NVIDIA driver|invalid device ordinal|Failed to initialize NVML|driver/library version mismatch"
        r"|No accelerator|uncorrectable ECC|unspecified launch failure|illegal memory access|Xid \d+"
        r"|<start>(?:RuntimeError|torch\.AcceleratorError): CUDA error",
        "The CUDA driver or a GPU reported an error.",
        "Check the GPUs with gpu_info, CUDA_VISIBLE_DEVICES in environment, and the driver (dmesg shows Xid errors).",
    ),
    _rule(
        "permission_denied",
        r"<start>PermissionError: |permission denied",
        "The server may not read or write something it needs.",
        "Give the server's user access to what the log names.",
    ),
    _rule(
        "missing_dependency",
        r"<start>(?:ModuleNotFoundError|ImportError): |No module named sglang|error while loading shared libraries"
        r"|Failed at step EXEC|(?:Unable|Failed) to locate executable",
        "The program, a Python module or a library is missing.",
        "Install it into the environment of the interpreter that starts the server, or give another python.",
    ),
    _rule(
        "warmup_failed",
        r"Initialization failed\. warmup error",
        "The server could not answer its own first request.",
        "Read the error below it in the log; proxy variables without no_proxy for 127.0.0.1 are a usual cause.",
    ),
    _rule(
        "watchdog_timeout",
        r"watchdog timeout|<start>.*watchdog.*(?:expired|timed out)",
        "The server's watchdog ended it because it made no progress.",
        "See what the log shows before that; a longer watchdog-timeout only helps when the step is really that slow.",
    ),
    _rule(
        "nccl_error",
        r"NCCL (?:error|failure|WARN.*error)|ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError"
        r"|ProcessGroupNCCL.*(?:timeout|timed out)|DistBackendError|init_process_group.*(?:timeout|timed out)",
        "The GPUs could not talk to each other (NCCL).",
        "Check /dev/shm and its size, the network interfaces that NCCL uses, and whether another rank died first.",
    ),
    _rule(
        "killed",
        r"\bSIGKILL\b|\boom[-_ ]kill|exit ?code:? ?-9\b|^Killed$",
        "The server was ended by SIGKILL.",
        "If nobody did it by hand, the kernel ran out of host memory: dmesg or the journal of the kernel names it.",
    ),
)

_KILLED = next(rule for rule in _RULES if rule.code == "killed")

# What is read of the two ends of a long line (characters).  Users' texts may be logged, and a pattern with several
# gaps would search them for hours.
_END = 500

# SGLang prints all its arguments on one line, which would match nearly anything.
_NOT_A_CAUSE = re.compile(r"server_args=|ServerArgs\(")
# What a server says before it ends itself because one of its workers asked for that.
_CHILD_FAILED = re.compile(r"\bsigquit received\b|\breceived sigquit\b|hit an exception", re.IGNORECASE)
_EXCEPTION = re.compile(
    _START + r"(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b|AssertionError|Fatal Python error)"
)


def classify(lines: Sequence[str], exit_status: Optional[int] = None, killed: bool = False) -> FailureReason:
    """The most telling reason that the lines of a log show.

    exit_status is the one of the server's main process where it is known (137 and -9 mean SIGKILL);
    killed says that the manager knows of a SIGKILL or of the kernel's out-of-memory killer.
    """
    candidates = [_ends(line) for line in lines if line.strip() and not _NOT_A_CAUSE.search(line)]
    for rule in _RULES:
        for line in candidates:
            if rule.pattern.search(line):
                return FailureReason(rule.code, rule.sentence, rule.remedy, line.strip())
    exception = _last_exception(candidates)
    # A server of which a worker fails may end itself by SIGKILL: then nobody else has killed it.
    by_itself = exception and any(_CHILD_FAILED.search(line) for line in candidates)
    if (killed or exit_status in _KILLED_STATUSES) and not by_itself:
        return FailureReason(_KILLED.code, _KILLED.sentence, _KILLED.remedy)
    return FailureReason("unknown", "The log shows no cause that is known here.", "Read the end of the log.", exception)


def _ends(line: str) -> str:
    return line if len(line) <= 2 * _END else "%s ... %s" % (line[:_END], line[-_END:])


def _last_exception(lines: Sequence[str]) -> str:
    """The last line that looks like the end of a traceback: the outermost exception."""
    for line in reversed(lines):
        if _EXCEPTION.search(line):
            return line.strip()
    return ""
