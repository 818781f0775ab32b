# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Be a process that holds GPU memory and that no signal ends, as a hung driver or a lost file server makes one.

usage: stuck_holder.py GPU MIB

It asks a file system whose daemon, a child of its own, has read the question and never answers. Not even SIGKILL ends
such a wait (state D from the first signal on). The daemon's end does: the kernel then answers in its place, and the
process takes the signals that came meanwhile. Prints ``stuck PID DAEMON`` once that is so.

Needs root and /dev/fuse. Nothing of the file system can be seen on the host.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

import fakegpu

LARGEST_REQUEST = 1 << 20
# Of every request: length, opcode, number, inode, user, group, process, extensions.
REQUEST = struct.Struct("<IIQQIIIHH")
FUSE_INIT = 26
# The answer to FUSE_INIT, version 7.31: no options.
INITIALISED = struct.pack("<IIIIHHIIHHI28x", 7, 31, 4096, 0, 12, 9, 4096, 1, 0, 0, 0)
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def mount_unanswered(folder: bytes) -> tuple[int, int]:
    """Mount the file system and take it out of sight; return its daemon's end and an open descriptor of its root."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
    if _libc.mount(b"stuck", folder, b"fuse", 0, options) != 0:
        raise OSError(ctypes.get_errno(), "cannot mount a file system of /dev/fuse")
    root = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    if _libc.umount2(folder, MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "cannot unmount it again")
    return device, root


def serve_nothing(device: int, holder: int) -> None:
    """Be the daemon: greet the kernel, take its first question, and leave it at that."""
    os.setsid()
    while True:
        request = os.read(device, LARGEST_REQUEST)
        _length, opcode, number = REQUEST.unpack_from(request)[:3]
        if opcode != FUSE_INIT:
            break
        os.write(device, struct.pack("<IiQ", 16 + len(INITIALISED), 0, number) + INITIALISED)
    print("stuck", holder, os.getpid(), flush=True)
    while True:
        signal.pause()


def main(gpu: int, mib: int) -> None:
    """Become stuck."""
    device, root = mount_unanswered(b"/mnt")
    holder = os.getpid()
    if os.fork() == 0:
        os.close(root)
        serve_nothing(device, holder)
    # The daemon's end must be the daemon's alone, so that its death is noticed.
    os.close(device)
    fakegpu.open_nodes([gpu])
    held = fakegpu.allocate(gpu, mib, name="stuck")
    os.stat(root)
    # The daemon was ended, and nobody has killed this process.
    held.release()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
