# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device of the NVIDIA driver a file is: told by its device number, else by its path.

A GPU is known by its minor number, the N of /dev/nvidiaN.
Sources: Documentation/admin-guide/devices.txt (major 195), /proc/devices (the dynamic majors).
"""

from __future__ import annotations

import os
import re
from typing import Dict, Mapping, Optional, Tuple

# The folder of the device nodes: an internal setting, which tests with nodes of their own replace.
DEV = "/dev"

# What a node is, where it is no GPU (those are their minor number, 0 or more).
CONTROL = -1  # nvidiactl: every client of the driver has it
UVM = -2  # nvidia-uvm: CUDA processes have it, and so have clients of NVML with newer drivers
OTHER = -3  # nvidia-modeset, nvidia-caps/*, nvidia-caps-imex-channels/*, nvidia-nvswitch*

_MAJOR = 195
_CONTROL_MINOR = 255
_MODESET_MINOR = 254
_GPU_NAME = re.compile(r"nvidia(\d+)\Z")
_DEVICES_LINE = re.compile(r"^\s*(\d+)\s+(nvidia\S*)$", re.MULTILINE)
_PCI_VENDOR_NVIDIA = "0x10de"


def dynamic_majors(devices: str) -> Dict[int, int]:
    """From the text of /proc/devices: what the nodes of each major number of the driver are."""
    found = {}
    for number, name in _DEVICES_LINE.findall(devices):
        if int(number) != _MAJOR:
            found[int(number)] = UVM if name == "nvidia-uvm" else OTHER
    return found


class DeviceNodes:
    """Says what a path or a device number means.

    majors: what `dynamic_majors` found; drm: the GPU's minor behind each /dev/dri node of an NVIDIA
    GPU, by path and by (major, minor); real: see the property, None: look.
    """

    def __init__(
        self,
        dev: str = "/dev",
        majors: Optional[Mapping[int, int]] = None,
        drm: Optional[Mapping[object, int]] = None,
        real: Optional[bool] = None,
    ) -> None:
        self.dev = dev.rstrip("/")
        self._nvidia = self.dev + "/nvidia"
        self._dri = self.dev + "/dri/"
        self._majors = dict(majors or {})
        self._drm = dict(drm or {})
        self._real = real

    @property
    def markers(self) -> Tuple[str, str]:
        """Every path of a node of the driver contains one of these."""
        return self._nvidia, self._dri

    def of_path(self, path: str) -> Optional[int]:
        """What the node at this path is: a GPU's minor, CONTROL, UVM, OTHER; None: none of the driver."""
        if path.startswith(self._nvidia):
            name = path[len(self.dev) + 1 :]
            gpu = _GPU_NAME.match(name)
            if gpu:
                return int(gpu.group(1))
            if name == "nvidiactl":
                return CONTROL
            return UVM if name == "nvidia-uvm" else OTHER
        return self._drm.get(path)

    def of_number(self, number: int) -> Optional[int]:
        """The same by device number (st_rdev): it tells the truth where a node has another name."""
        major, minor = os.major(number), os.minor(number)
        if major == _MAJOR:
            if minor == _CONTROL_MINOR:
                return CONTROL
            return OTHER if minor == _MODESET_MINOR else minor
        if major in self._majors:
            # nvidia-uvm-tools is minor 1 of the same major: for profilers, it holds no memory.
            return self._majors[major] if minor == 0 else OTHER
        return self._drm.get((major, minor))

    @property
    def real(self) -> bool:
        """Whether the nodes here are the driver's own.  Then a file's number alone tells what it is.

        Stand-ins of a simulated GPU have somebody else's number, and only their identity as files tells.
        """
        if self._real is None:
            try:
                self._real = os.major(os.stat(self.dev + "/nvidiactl").st_rdev) == _MAJOR
            except OSError:
                self._real = False
        return self._real

    def is_ours(self, path: str, inode: int) -> bool:
        """Whether the file with this path and inode, as another process sees it, is the node of this host."""
        if self.real:
            return True
        try:
            return os.stat(path).st_ino == inode
        except OSError:
            return False

    @property
    def present(self) -> bool:
        """Whether this host's driver works through device nodes at all (WSL and some simulators do not)."""
        return os.path.exists(self.dev + "/nvidiactl")


def read_nodes(proc: str = "/proc", sys: str = "/sys") -> DeviceNodes:
    """The nodes of this host."""
    return DeviceNodes(DEV, dynamic_majors(_text(os.path.join(proc, "devices"))), _drm_nodes(proc, sys))


def uuids_by_minor(proc: str = "/proc") -> Dict[int, str]:
    """The UUID of each GPU as the driver itself tells it, without opening the GPU; empty where it does not."""
    base = os.path.join(proc, "driver", "nvidia", "gpus")
    found: Dict[int, str] = {}
    try:
        addresses = os.listdir(base)
    except OSError:
        return found
    for address in addresses:
        text = _text(os.path.join(base, address, "information"))
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)", text, re.MULTILINE)
        if minor and uuid:
            found[int(minor.group(1))] = uuid.group(1)
    return found


def _drm_nodes(proc: str, sys: str) -> Dict[object, int]:
    """The /dev/dri nodes of NVIDIA GPUs: a desktop or a renderer holds a GPU through them alone."""
    found: Dict[object, int] = {}
    base = os.path.join(sys, "class", "drm")
    try:
        names = os.listdir(base)
    except OSError:
        return found
    for name in names:
        if not re.match(r"(card|renderD)\d+\Z", name):
            continue
        device = os.path.join(base, name, "device")
        if _first_line(os.path.join(device, "vendor")) != _PCI_VENDOR_NVIDIA:
            continue
        address = os.path.basename(os.path.realpath(device))
        minor = _minor_at(os.path.join(proc, "driver", "nvidia", "gpus", address, "information"))
        if minor is None:
            continue
        found["%s/dri/%s" % (DEV, name)] = minor
        major_minor = _first_line(os.path.join(base, name, "dev")).split(":")
        if len(major_minor) == 2 and all(part.isdigit() for part in major_minor):
            found[(int(major_minor[0]), int(major_minor[1]))] = minor
    return found


def _minor_at(information: str) -> Optional[int]:
    """The minor number in the driver's own description of a GPU."""
    line = re.search(r"^Device Minor:\s*(\d+)", _text(information), re.MULTILINE)
    return int(line.group(1)) if line else None


def _first_line(path: str) -> str:
    return _text(path).split("\n", 1)[0].strip()


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
