# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVML's return codes mean and what to do about them.

Source of the codes: nvmlReturn_t in NVIDIA's nvml.h.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13
ARGUMENT_VERSION_MISMATCH = 25

_BECOME = "Run the task as root (become: true)"
_INSTALL = "Install the NVIDIA driver with its libnvidia-ml.so.1, and check with nvidia-smi"
_RELOAD = "Reboot, or end all GPU users and reload the NVIDIA kernel modules"
_AGAIN = "Try again; if it stays, look for NVRM and Xid lines in the kernel log"
_MATCH = "Install a newer driver, or the nvidia-ml-py release of the driver's branch"

# code: (reason, what happened, remedy, permanent)
_MEANINGS: Dict[int, Tuple[str, str, str, bool]] = {
    1: ("uninitialized", "NVML lost its connection to the driver", _AGAIN, False),
    2: ("invalid_argument", "NVML rejected the question as invalid", _MATCH, False),
    3: ("not_supported", "This GPU or driver does not support the question", _MATCH, True),
    4: ("no_permission", "The driver denies access", _BECOME, True),
    6: ("not_found", "The driver does not find the GPU", _AGAIN, False),
    7: ("insufficient_size", "The driver's list grew faster than it could be read", _AGAIN, False),
    9: ("driver_not_loaded", "The NVIDIA kernel driver is not loaded", "Load it (modprobe nvidia) or reboot", True),
    10: ("driver_timeout", "The driver gave up on the GPU after its own time limit", _AGAIN, False),
    12: ("library_not_found", "The library libnvidia-ml.so.1 is not installed", _INSTALL, True),
    13: ("function_not_found", "The installed NVML lacks a function that is needed", _MATCH, True),
    15: (
        "lost",
        "The GPU has fallen off the bus or is otherwise inaccessible",
        "Look for Xid 79 in the kernel log; reset the GPU or power-cycle the host",
        True,
    ),
    16: ("reset_required", "The GPU needs a reset before it can be used", "End its users and reset the GPU", True),
    17: (
        "operating_system",
        "The operating system blocks access to the GPU",
        "Check the device permissions and the control group's device rules, or run outside the container",
        True,
    ),
    18: (
        "library_mismatch",
        "The NVML library and the loaded kernel driver are of different versions (after an upgrade)",
        _RELOAD,
        True,
    ),
    19: ("in_use", "The GPU is being used exclusively by another client of the driver", _AGAIN, False),
    20: ("no_memory", "The host has too little memory for the question", _AGAIN, False),
    25: ("argument_version_mismatch", "NVML does not know this version of the question", _MATCH, True),
    27: ("not_ready", "The GPU is not ready yet", _AGAIN, False),
    999: ("unknown_error", "NVML reports an unknown internal error", _AGAIN, False),
}


class MissingFunction(Exception):
    """The imported Python binding itself has no such function."""


def nvml_code(exc: BaseException) -> Optional[int]:
    """NVML's return code behind an exception of the binding, or None where it has none.

    A function that the library lacks shows in three ways, one of which (NVMLLibraryMismatchError) is
    not even an NVMLError; all three count as FUNCTION_NOT_FOUND here.
    """
    if isinstance(exc, MissingFunction) or type(exc).__name__ == "NVMLLibraryMismatchError":
        return FUNCTION_NOT_FOUND
    value = getattr(exc, "value", None)
    return value if isinstance(value, int) else None


def failure_of(exc: BaseException, doing: str) -> Failure:
    """Explain an exception of the binding; `doing` names the step ("reading its memory")."""
    code = nvml_code(exc)
    if code is None:
        return Failure(
            "unexpected",
            "%s failed in an unforeseen way: %s: %s" % (_upper_first(doing), type(exc).__name__, exc),
            "Check that nvidia-ml-py fits the driver",
        )
    if code not in _MEANINGS:
        return Failure("nvml_error_%d" % code, "NVML error %d while %s" % (code, doing), _AGAIN)
    reason, sentence, remedy, permanent = _MEANINGS[code]
    return Failure(reason, "%s (NVML error %d while %s)" % (sentence, code, doing), remedy, permanent)


def hung(doing: str, seconds: float) -> Failure:
    """The driver did not answer in time; it may recover, so this is not permanent."""
    return Failure(
        "hung",
        "The driver did not answer within %g s while %s" % (seconds, doing),
        "Look for Xid 119, 120 or 154 in the kernel log and reset the GPU or reboot; "
        "if the driver is only slow (persistence mode off), raise nvml_timeout",
    )


def crashed(doing: str) -> Failure:
    """The process that asks NVML died."""
    return Failure(
        "crashed",
        "The NVML library crashed while %s" % doing,
        "Check that library and driver are of the same version with nvidia-smi",
    )


def _upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]
