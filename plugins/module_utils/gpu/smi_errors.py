# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi means when it fails, or shows words where a figure belongs.

Most of its exit codes and words are NVML's, so they become the failures that NVML itself would give.

Source: the section RETURN VALUE of nvidia-smi(1); the texts of nvmlErrorString.
"""

from __future__ import annotations

from typing import Optional

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, printable

TOOL = "nvidia-smi"
_UNKNOWN_ERROR = 999
# Exit codes that are NVML's; the others are nvidia-smi's "other error" (255), or of a wrapper or the loader.
_NVML_CODES = range(1, 31)

# The first one that occurs decides: a line may name both what failed and why.
_PHRASES = (
    ("driver/library version mismatch", 18),
    ("couldn't communicate with the nvidia driver", 9),
    ("driver not loaded", 9),
    ("driver is not loaded", 9),
    ("couldn't find libnvidia-ml", 12),
    ("shared library not found", 12),
    ("error while loading shared libraries", 12),
    ("gpu is lost", 15),
    ("requires reset", 16),
    ("reset required", 16),
    ("blocked by the operating system", 17),
    ("insufficient permissions", nvml_errors.NO_PERMISSION),
    ("in use by another client", 19),
    ("insufficient memory", 20),
    ("timeout", 10),
    ("not ready", 27),
    ("function not found", nvml_errors.FUNCTION_NOT_FOUND),
    ("not supported", nvml_errors.NOT_SUPPORTED),
    ("has been deprecated", nvml_errors.NOT_SUPPORTED),
    ("no devices were found", nvml_errors.NOT_FOUND),
    ("no devices found", nvml_errors.NOT_FOUND),
    ("not found", nvml_errors.NOT_FOUND),
    ("unknown error", _UNKNOWN_ERROR),
    ("unable to determine the device handle", _UNKNOWN_ERROR),
)
# How it writes that there is no such value.
_ABSENT = frozenset(["n/a", "not available"])


class _NvmlCode(Exception):
    """A code of NVML's that came by way of nvidia-smi."""

    def __init__(self, value: int) -> None:
        super().__init__("NVML error %d" % value)
        self.value = value


def code_in(words: str) -> Optional[int]:
    """NVML's code for an error or an absence that words tell of, or None where they tell of none."""
    text = words.strip().strip("[]").strip().lower()
    if text in _ABSENT:
        return nvml_errors.NOT_SUPPORTED
    if text == "err!":
        return _UNKNOWN_ERROR
    return next((code for phrase, code in _PHRASES if phrase in text), None)


def exit_failure(status: int, words: str, doing: str) -> Failure:
    """Why a run without a usable answer failed.

    status is its exit status, negative for the signal that ended it; words are what it wrote.
    """
    code = code_in(words)
    if code is None and status < 0:
        return Failure(
            "crashed",
            "%s was ended by signal %d while %s" % (TOOL, -status, doing),
            "Run %s by hand on this host, and check that it is of the driver's version" % TOOL,
        )
    if code is None and status == 0:
        return output_failure("ended without an error and without an answer while %s" % doing)
    if code is None:
        code = status if status in _NVML_CODES else _UNKNOWN_ERROR
    failure = nvml_errors.failure_of(_NvmlCode(code), doing)
    said = printable(" ".join(words.split()), 200)
    if not said:
        return failure
    return Failure(failure.code, '%s: %s says "%s"' % (failure.message, TOOL, said), failure.remedy, failure.permanent)


def value_failure(text: str, what: str) -> Failure:
    """Why a value in its answer is none; `what` names the value ("its used memory")."""
    code = code_in(text)
    if code is None:
        return output_failure("shows %s as %r, which is no such value" % (what, printable(text.strip())))
    failure = nvml_errors.failure_of(_NvmlCode(code), "reading %s" % what)
    return Failure(
        failure.code,
        '%s: %s shows "%s"' % (failure.message, TOOL, printable(text.strip())),
        failure.remedy,
        failure.permanent,
    )


def output_failure(problem: str) -> Failure:
    """The answer itself cannot be used."""
    return Failure(
        "nvidia_smi_output",
        "%s %s" % (TOOL, problem),
        "Run nvidia-smi -q -x by hand on this host; if its answer looks sound, use reader=nvml and report a bug",
    )


def missing(problem: str) -> Failure:
    """The tool cannot be run."""
    return Failure(
        "nvidia_smi_missing",
        "%s %s" % (TOOL, problem),
        "Install the NVIDIA driver's utilities, or put the folder of nvidia-smi into the PATH of the task, "
        "or use reader=nvml",
        permanent=True,
    )
