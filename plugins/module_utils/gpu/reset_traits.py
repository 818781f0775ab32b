# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decides how a GPU may be reset: its generation, what its NVLinks lead to, and whose it is.

Asked only before and after a reset, so it is no part of a reading.

Sources: nvmlDeviceArchitecture_t, nvmlGpuVirtualizationMode_t and nvmlGpuFabricState_t in nvml.h.
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import UNKNOWN

# In the order in which they appeared.  What is newer than the last one is "newer".
GENERATIONS = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "newer")
NOT_SUPPORTED = "not_supported"

_ARCHITECTURES = dict(enumerate(GENERATIONS[:9], 2))
_RUBIN = 13
# From which compute capability on a GPU is of which generation.
_CAPABILITIES = (
    ((11, 0), "blackwell"),
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((3, 0), "kepler"),
)
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_FABRIC = {0: NOT_SUPPORTED, 1: "not_started", 2: "in_progress", 3: "completed"}
_LINK_TO_SWITCH = 2
_MOST_LINKS = 64
# NVML's codes for "there is no such property" and for a link of a number that does not exist.
_ABSENT = frozenset([3, 13])
_NO_SUCH_LINK = frozenset([2, 6])


@dataclass(frozen=True)
class GpuTraits:
    """One GPU.  peers are the PCI bus ids of the GPUs at the other ends of its NVLinks; switched: a link
    leads to an NVSwitch; down: so many links do not say where they lead.  links_read: these three are
    known.  fabric: not_supported, not_started, in_progress, completed, failed or unknown.
    """

    index: int
    architecture: str = UNKNOWN
    peers: Tuple[str, ...] = ()
    switched: bool = False
    down: int = 0
    links_read: bool = False
    virtualization: str = UNKNOWN
    display: str = UNKNOWN
    fabric: str = UNKNOWN

    def older_than(self, generation: str) -> bool:
        """Whether it is of an earlier generation than this one, or of one that is not known."""
        if self.architecture not in GENERATIONS:
            return True
        return GENERATIONS.index(self.architecture) < GENERATIONS.index(generation)


def traits_to_dict(traits: GpuTraits) -> Dict[str, Any]:
    """As JSON can carry it."""
    return asdict(traits)


def traits_from_dict(raw: Dict[str, Any]) -> GpuTraits:
    """What `traits_to_dict` took apart."""
    return GpuTraits(**dict(raw, peers=tuple(raw["peers"])))


def by_capability(major: int, minor: int) -> str:
    """The generation that a CUDA compute capability belongs to."""
    if major > 12:
        return "newer"
    return next((name for since, name in _CAPABILITIES if (major, minor) >= since), UNKNOWN)


def architecture_named(text: str) -> str:
    """The generation that nvidia-smi names, as in "Ada Lovelace"."""
    word = text.strip().lower().split(" ")[0]
    return word if word in GENERATIONS else "newer" if word == "rubin" else UNKNOWN


class TraitsReader:
    """Asks NVML.  ask(name, *arguments) calls a function of the binding; code(exc) is NVML's number of an
    exception of it, None where it has none.  pynvml: for the structure that one of them fills in.
    """

    def __init__(self, ask: Callable[..., Any], code: Callable[[BaseException], Optional[int]], pynvml: Any) -> None:
        self._ask = ask
        self._code = code
        self._pynvml = pynvml

    def read(self, index: int, handle: Any) -> GpuTraits:
        """All about one GPU.  Never raises: what cannot be learnt stays unknown."""
        peers, switched, down, complete = self._links(handle)
        return GpuTraits(
            index=index,
            architecture=self._architecture(handle),
            peers=peers,
            switched=switched,
            down=down,
            links_read=complete,
            virtualization=self._word("nvmlDeviceGetVirtualizationMode", handle, _VIRTUALIZATION, "none"),
            display=self._word("nvmlDeviceGetDisplayActive", handle, {0: "disabled", 1: "enabled"}, "disabled"),
            fabric=self._fabric(handle),
        )

    def _architecture(self, handle: Any) -> str:
        try:
            number = int(self._ask("nvmlDeviceGetArchitecture", handle))
            if number in _ARCHITECTURES:
                return _ARCHITECTURES[number]
            if number == _RUBIN:
                return "newer"
        except Exception:  # pylint: disable=broad-except
            pass
        try:
            major, minor = self._ask("nvmlDeviceGetCudaComputeCapability", handle)
            return by_capability(int(major), int(minor))
        except Exception:  # pylint: disable=broad-except
            return UNKNOWN

    def _word(self, name: str, handle: Any, words: Dict[int, str], absent: str) -> str:
        try:
            return words.get(int(self._ask(name, handle)), UNKNOWN)
        except Exception as exc:  # pylint: disable=broad-except
            return absent if self._code(exc) in _ABSENT else UNKNOWN

    def _fabric(self, handle: Any) -> str:
        """Whether the GPU is registered with the NVLink fabric; a library that does not know the question has none."""
        structure = getattr(self._pynvml, "c_nvmlGpuFabricInfo_v2_t", None)
        if structure is None:
            return NOT_SUPPORTED
        info = structure()
        try:
            self._ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
        except Exception as exc:  # pylint: disable=broad-except
            return NOT_SUPPORTED if self._code(exc) in _ABSENT else UNKNOWN
        state = _FABRIC.get(int(info.state), UNKNOWN)
        return "failed" if state == "completed" and int(info.status) != 0 else state

    def _links(self, handle: Any) -> Tuple[Tuple[str, ...], bool, int, bool]:
        """Peers, whether there is a switch, links that lead nowhere, and whether that is all."""
        peers: List[str] = []
        switched, down = False, 0
        for link in range(_MOST_LINKS):
            try:
                active = bool(self._ask("nvmlDeviceGetNvLinkState", handle, link))
            except Exception as exc:  # pylint: disable=broad-except
                code = self._code(exc)
                # A GPU without links, or the number after the last one.
                return (
                    tuple(sorted(set(peers))),
                    switched,
                    down,
                    code in _ABSENT or (link > 0 and code in _NO_SUCH_LINK),
                )
            kind = self._value("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            if kind is not None and int(kind) == _LINK_TO_SWITCH:
                switched = True
                continue
            remote = self._value("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            if remote is not None:
                peers.append(bus_id(remote.busId))
            elif active:
                return tuple(sorted(set(peers))), switched, down, False
            else:
                down += 1
        return tuple(sorted(set(peers))), switched, down, True

    def _value(self, name: str, handle: Any, link: int) -> Any:
        try:
            return self._ask(name, handle, link)
        except Exception:  # pylint: disable=broad-except
            return None


def bus_id(value: Any) -> str:
    """A PCI bus id in one spelling, whoever it comes from: 00000000:0b:00.0."""
    text = (value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)).strip().lower()
    domain, colon, rest = text.partition(":")
    if colon and ":" in rest:
        return "%s:%s" % (domain.rjust(8, "0")[-8:], rest)
    return "00000000:" + text if colon else text
