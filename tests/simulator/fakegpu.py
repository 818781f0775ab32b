# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set up simulated GPUs and hold simulated GPU memory.

The simulated ``libnvidia-ml.so.1`` (see ``nvml/``) and this module share one folder, ``$FAKEGPU_DIR`` or
``/run/fakegpu``:

``config``
    what the machine looks like; replaced as a whole, read by the library at each call;
``alloc/<gpu>.<pid>.<n>-<namespace>``
    one allocation, text ``MIB KIND NAME`` (in a MIG instance KIND has ``@GI/CI`` behind it), alive as long as any
    process keeps the owner's open description of it
    (the owner's shared flock tells), and touched ten times a second, so that it is known until when it was;
    the namespace is the one that the PID is a number of;
``alloc/<gpu>.<pid>.<n>-<namespace>@<ns>``
    an allocation that was over at that monotonic time, and counts until the release delay has passed;
``calls/``
    counters of the failures that are limited to certain calls.

Standard library only; runs on Python 3.8 and newer.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import mmap
import os
import signal
import stat
import sys
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

DEFAULT_FOLDER = "/run/fakegpu"

# What an idle H200 reports (MiB).
H200 = {"name": "NVIDIA H200", "total": 143771, "reserved": 615}

# How often an owner says that it still holds its memory (seconds).
HEARTBEAT = 0.1

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)

StatePath = Union[str, "os.PathLike[str]", None]


def folder(state: StatePath = None) -> Path:
    """The shared folder: the argument, else ``$FAKEGPU_DIR``, else ``/run/fakegpu``."""
    return Path(state or os.environ.get("FAKEGPU_DIR") or DEFAULT_FOLDER)


# ---------------------------------------------------------------------------------------------- configuration


def gpu_uuid(index: int, host_seed: str = "") -> str:
    """A UUID that is the same in every run, and differs between hosts that have different seeds."""
    import hashlib  # loads OpenSSL, which no holder needs

    digest = hashlib.sha256("{}/{}".format(host_seed, index).encode()).hexdigest()
    parts = digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]
    return "GPU-" + "-".join(parts)


def gpu_bus(index: int) -> str:
    """The PCI bus id of a simulated GPU, as NVML spells it."""
    return "00000000:{:02X}:00.0".format(0x08 + 3 * index)


def setup(
    gpus: int,
    state: StatePath = None,
    *,
    name: str = str(H200["name"]),
    total: int = int(H200["total"]),
    reserved: int = int(H200["reserved"]),
    release_delay: float = 0.2,
    host_seed: str = "",
    driver: str = "580.159.04",
) -> Path:
    """Make the shared folder of a host with ``gpus`` idle GPUs; sizes in MiB, the delay in seconds.

    What an earlier setup left there is forgotten, allocations of live processes included.
    """
    path = folder(state)
    for part in ("alloc", "calls"):
        (path / part).mkdir(parents=True, exist_ok=True)
        # Processes of every user allocate memory and look at it, as they do on a real GPU.
        (path / part).chmod(0o777)
        for old in (path / part).iterdir():
            old.unlink()
    path.chmod(0o777)
    lines = ["driver " + driver, "nvml 13." + driver, "cuda 13000", "release_delay {:g}".format(release_delay)]
    for index in range(gpus):
        settings = {
            "uuid": gpu_uuid(index, host_seed),
            "bus": gpu_bus(index),
            "serial": 1650000000000 + index,
            "minor": index,
            "total": total,
            "reserved": reserved,
            "base": 0,
            "persistence": 1,
            "mig": 0,
            "recovery": 0,
        }
        lines.append(_gpu_line(index, settings, name))
    _replace(path / "config", lines)
    return path


def _replace(path: Path, lines: Sequence[str]) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    temporary = path.with_name(".config.{}-{}".format(os.getpid(), time.monotonic_ns()))
    with open(str(temporary), "x") as file:
        file.write("".join(line + "\n" for line in lines))
    temporary.chmod(0o666)
    os.replace(str(temporary), str(path))


@contextmanager
def edit(state: StatePath = None) -> Iterator[List[str]]:
    """The configuration's lines, to change in place; one editor at a time."""
    path = folder(state)
    with open(str(path / ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = (path / "config").read_text().splitlines()
        yield lines
        _replace(path / "config", lines)


def set_value(key: str, *values: object, state: StatePath = None) -> None:
    """Set a line of one value: ``driver``, ``release_delay``, ``count``, ``init``, ``drop_foreign`` and so on."""
    with edit(state) as lines:
        lines[:] = [line for line in lines if line.split(None, 1)[:1] != [key]]
        lines.append(" ".join([key, *map(str, values)]))


def set_gpu(index: int, state: StatePath = None, **changes: object) -> None:
    """Change properties of one GPU: ``base``, ``recovery``, ``mig``, ``persistence``, ``minor``, ``uuid``, ``name``…

    :raises ValueError: when there is no such GPU.
    """
    with edit(state) as lines:
        for number, line in enumerate(lines):
            if line.split()[:2] == ["gpu", str(index)]:
                settings = _gpu_settings(line)
                settings.update({key: str(value) for key, value in changes.items()})
                name = settings.pop("name")
                lines[number] = _gpu_line(index, settings, name)
                return
        raise ValueError("there is no GPU {}".format(index))


def _gpu_line(index: int, settings: Mapping[str, object], name: str) -> str:
    """The name comes last, since it may hold spaces."""
    pairs = ["{}={}".format(key, value) for key, value in settings.items()]
    return " ".join(["gpu", str(index), *pairs, "name=" + name])


def _gpu_settings(line: str) -> Dict[str, str]:
    pairs, _key, name = line.partition(" name=")
    settings = dict(pair.split("=", 1) for pair in pairs.split()[2:])
    settings["name"] = name
    return settings


def gpu_settings(index: int, state: StatePath = None) -> Dict[str, str]:
    """The configured properties of one GPU as text.

    :raises ValueError: when there is no such GPU.
    """
    for line in (folder(state) / "config").read_text().splitlines():
        if line.split()[:2] == ["gpu", str(index)]:
            return _gpu_settings(line)
    raise ValueError("there is no GPU {}".format(index))


def fail(
    function: str,
    gpu: Union[int, str],
    code: int,
    *,
    after: int = 0,
    times: Optional[int] = None,
    state: StatePath = None,
) -> None:
    """Answer calls of ``function`` (a shell pattern) about ``gpu`` (index or ``"*"``) with the NVML code ``code``.

    ``"0/whole"`` is GPU 0 without its MIG instances, which go on answering.
    ``after`` lets that many calls succeed first, over all processes; ``times`` limits how many fail then.
    """
    _add_rule("fail", function, gpu, str(code), after, times, state)


def hang(
    function: str,
    gpu: Union[int, str],
    seconds: Union[float, str],
    *,
    after: int = 0,
    times: Optional[int] = None,
    state: StatePath = None,
) -> None:
    """Let calls of ``function`` about ``gpu`` take ``seconds``, or ``"forever"``; only SIGKILL ends the wait."""
    _add_rule("hang", function, gpu, str(seconds), after, times, state)


def _add_rule(
    kind: str,
    function: str,
    gpu: Union[int, str],
    value: str,
    after: int,
    times: Optional[int],
    state: StatePath,
) -> None:
    line = "{} {} {} {}".format(kind, function, gpu, value)
    if after:
        line += " after {}".format(after)
    if times is not None:
        line += " times {}".format(times)
    number = -1 if str(gpu) == "*" else int(str(gpu).partition("/")[0])
    counter = folder(state) / "calls" / "{}.{}.{}".format(kind, function, number)
    if counter.exists():
        counter.unlink()
    with edit(state) as lines:
        lines.append(line)


def missing(function: str, state: StatePath = None) -> None:
    """Answer as a library that does not know ``function`` (FUNCTION_NOT_FOUND)."""
    with edit(state) as lines:
        lines.append("missing " + function)


def add_process(
    gpu: int,
    pid: int,
    mib: int,
    kind: str = "C",
    state: StatePath = None,
    instance: Optional[Tuple[int, int]] = None,
) -> None:
    """List a process that need not exist; ``mib`` -1 = the driver does not say how much it holds.

    ``instance``: the numbers of the GPU instance and the compute instance that it is in, under MIG.
    """
    words: List[object] = ["proc", gpu, pid, mib, kind, *(instance or ())]
    with edit(state) as lines:
        lines.append(" ".join(map(str, words)))


def add_instance(
    gpu: int, total: int, gpu_instance: int, compute_instance: int = 0, used: int = 0, state: StatePath = None
) -> str:
    """Divide a GPU: MIG mode on, and one more instance of ``total`` MiB. Returns its UUID.

    ``used`` is memory in use there that belongs to no process (MiB).
    """
    set_gpu(gpu, state, mig=1)
    uuid = "MIG-" + gpu_uuid(gpu, "mig {}/{}".format(gpu_instance, compute_instance))[len("GPU-") :]
    with edit(state) as lines:
        index = sum(line.split()[:2] == ["mig", str(gpu)] for line in lines)
        words = ["mig", gpu, index, uuid, total, used, gpu_instance, compute_instance]
        lines.append(" ".join(map(str, words)))
    return uuid


def clear(*keys: str, state: StatePath = None) -> None:
    """Remove all lines of these kinds; without an argument every failure, hang, missing symbol and static process."""
    unwanted = keys or ("fail", "hang", "missing", "proc", "init", "count", "drop_foreign")
    with edit(state) as lines:
        lines[:] = [line for line in lines if (line.split() or [""])[0] not in unwanted]


# ------------------------------------------------------------------------------------------------ allocations


class Allocation:
    """Simulated GPU memory that this process holds. Dropping the object keeps the memory; exiting frees it."""

    def __init__(self, path: Path, descriptor: int, gpu: int, mib: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.gpu = gpu
        self.mib = mib

    def release(self) -> None:
        """Free the memory now, also where a forked child still has the descriptor; takes the release delay."""
        _heartbeat.forget(self.path)
        stamped = self.path.with_name("{}@{}".format(self.path.name, time.monotonic_ns()))
        os.rename(str(self.path), str(stamped))
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def keep_by_mapping_only(self) -> None:
        """Map the file and close the descriptor: held, but /proc/PID/fd no longer shows it."""
        map_file(self.descriptor)
        os.close(self.descriptor)

    def __enter__(self) -> Allocation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class _Heartbeat:
    """A thread that touches this process's allocations, here and in forked children."""

    def __init__(self) -> None:
        self._paths: List[str] = []
        self._thread: Optional[threading.Thread] = None
        os.register_at_fork(after_in_child=self._start)

    def keep(self, path: Path) -> None:
        self._paths.append(str(path))
        if self._thread is None:
            self._start()

    def forget(self, path: Path) -> None:
        with suppress(ValueError):
            self._paths.remove(str(path))

    def _start(self) -> None:
        if self._paths:
            self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            for path in list(self._paths):
                with suppress(OSError):  # a later setup may have forgotten this allocation
                    os.utime(path)
            time.sleep(HEARTBEAT)


_heartbeat = _Heartbeat()


def allocate(
    gpu: int,
    mib: int,
    kind: str = "C",
    name: str = "",
    state: StatePath = None,
    pid: Optional[int] = None,
    instance: Optional[Tuple[int, int]] = None,
) -> Allocation:
    """Hold ``mib`` MiB of GPU ``gpu`` (NVML index) until this process and all that inherit the descriptor are gone.

    ``kind``: ``C`` compute, ``G`` graphics, ``M`` MPS client, ``H`` memory that no list shows. ``pid`` is the number
    that NVML lists, by default this process's; ``instance`` the GPU and compute instance that the memory is of.
    """
    owner = os.getpid() if pid is None else pid
    path = folder(state) / "alloc" / "{}.{}.{}-{}".format(gpu, owner, time.monotonic_ns(), _pid_namespace())
    unfinished = path.with_name("." + path.name)
    # Not inherited over exec, as CUDA's own descriptors are not; a fork does inherit it.
    descriptor = os.open(str(unfinished), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    os.fchmod(descriptor, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    where = "@{}/{}".format(*instance) if instance else ""
    os.write(descriptor, "{} {}{} {}\n".format(mib, kind, where, name or "process").encode())
    # Visible only now that it is locked: nobody can take it for one that is over.
    os.rename(str(unfinished), str(path))
    _heartbeat.keep(path)
    return Allocation(path, descriptor, gpu, mib)


def _pid_namespace() -> int:
    """The namespace that this process's PIDs are numbers of: NVML tells each caller those of its own."""
    return os.stat("/proc/self/ns/pid").st_ino


def share(exporter: int, gpu: int, state: StatePath = None) -> List[Allocation]:
    """Map what another process holds on a GPU, as the importer of CUDA IPC memory does.

    The memory then outlives its exporter, and the driver lists it under this process as soon as that one is gone.
    """
    shared = []
    for file in sorted((folder(state) / "alloc").glob("{}.{}.*".format(gpu, exporter))):
        descriptor = os.open(str(file), os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        shared.append(Allocation(file, descriptor, gpu, int(file.read_text().split()[0])))
    threading.Thread(target=_inherit, args=(exporter, shared), name="importer", daemon=True).start()
    return shared


def _inherit(exporter: int, shared: Sequence[Allocation]) -> None:
    while _runs(exporter):
        time.sleep(0.01)
    for allocation in shared:
        _gpu, _pid, number = allocation.path.name.split(".")
        mine = allocation.path.with_name("{}.{}.{}".format(allocation.gpu, os.getpid(), number))
        os.rename(str(allocation.path), str(mine))
        allocation.path = mine
        _heartbeat.keep(mine)


def _runs(pid: int) -> bool:
    try:
        return Path("/proc/{}/stat".format(pid)).read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def observe(state: StatePath = None) -> List[Dict[str, Any]]:
    """Look at all allocations as the library does: note those that are over, forget those whose delay has passed.

    Each is a dict with ``gpu``, ``pid``, ``mib``, ``kind``, ``name`` and ``releasing``.
    """
    path = folder(state)
    delay = 0.0
    for line in (path / "config").read_text().splitlines():
        if line.startswith("release_delay "):
            delay = float(line.split()[1])
    found = []
    for file in sorted((path / "alloc").iterdir()):
        if file.name.startswith("."):
            continue
        name, _at, stamp = file.name.partition("@")
        try:
            text = file.read_text().split(None, 2)
            over = int(stamp) if stamp else _over_since(file)
            if over is not None and time.monotonic_ns() - over >= delay * 1e9:
                file.unlink()
                continue
            if over is not None and not stamp:
                file.rename(file.with_name("{}@{}".format(name, over)))
        except FileNotFoundError:
            continue
        gpu, pid = name.split(".")[:2]
        found.append(
            {
                "gpu": int(gpu),
                "pid": int(pid),
                "mib": int(text[0]),
                "kind": text[1].partition("@")[0],
                "name": text[2].strip(),
                "releasing": over is not None,
            }
        )
    return found


def _over_since(file: Path) -> Optional[int]:
    """The monotonic time (ns) at which an allocation was last held, or None while it is."""
    with open(str(file)) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.utime(str(file))
            return None
        return time.monotonic_ns() - max(0, time.time_ns() - os.fstat(handle.fileno()).st_mtime_ns)


def settle(timeout: float = 10.0, state: StatePath = None) -> None:
    """Wait until no allocation is in its release delay any more, so that one single look afterwards sees the truth.

    :raises TimeoutError: when that takes longer than ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while any(row["releasing"] for row in observe(state)):
        if time.monotonic() > deadline:
            raise TimeoutError("simulated memory is still being released after {:g} s".format(timeout))
        time.sleep(0.01)


# ----------------------------------------------------------------------------------------- device nodes, names


def device_folder() -> Path:
    """Where the device nodes are: ``$FAKEGPU_DEV``, else ``/dev``."""
    return Path(os.environ.get("FAKEGPU_DEV") or "/dev")


def make_nodes(state: StatePath = None, dev: Optional[str] = None) -> List[Path]:
    """Create device nodes for the configured GPUs: real character devices (of /dev/zero) as root, else plain files.

    The driver's own major number 195 needs the driver, so code under test must match names or what it is told.
    """
    target = Path(dev) if dev else device_folder()
    target.mkdir(parents=True, exist_ok=True)
    lines = (folder(state) / "config").read_text().splitlines()
    minors = [_gpu_settings(line)["minor"] for line in lines if line.startswith("gpu ")]
    nodes = []
    for name in ["nvidia" + minor for minor in minors] + ["nvidiactl", "nvidia-uvm"]:
        node = target / name
        if not node.exists():
            try:
                os.mknod(str(node), stat.S_IFCHR | 0o666, os.makedev(1, 5))
            except PermissionError:
                node.write_bytes(b"\0" * mmap.PAGESIZE)
            node.chmod(0o666)
        nodes.append(node)
    return nodes


def open_nodes(gpus: Sequence[int], state: StatePath = None) -> List[int]:
    """Open the device nodes that a CUDA process on these GPUs has open, as far as they exist."""
    names = ["nvidia" + gpu_settings(gpu, state)["minor"] for gpu in gpus]
    descriptors = []
    for name in [*names, "nvidiactl", "nvidia-uvm"]:
        with suppress(OSError):
            descriptors.append(os.open(str(device_folder() / name), os.O_RDWR | os.O_CLOEXEC))
    return descriptors


def open_to_ask(state: StatePath = None) -> List[int]:
    """Be a program that only asks NVML, as nvtop: the library is loaded, and every node open but none mapped.

    The library that is loaded may be any that can be found; where there is none, only the nodes are opened.
    """
    with suppress(OSError):
        ctypes.CDLL("libnvidia-ml.so.1")
    lines = (folder(state) / "config").read_text().splitlines()
    minors = [_gpu_settings(line)["minor"] for line in lines if line.startswith("gpu ")]
    names = ["nvidiactl", "nvidia-uvm", *("nvidia" + minor for minor in minors)]
    return [os.open(str(device_folder() / name), os.O_RDWR | os.O_CLOEXEC) for name in names]


def map_file(descriptor: int) -> None:
    """Map a file for as long as the process lives. (The mmap module keeps a descriptor open, which would show.)"""
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    address = _libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def set_title(title: str, name: Optional[str] = None) -> None:
    """Give this process another command line, as setproctitle does, and another ``comm`` (cut to 15 bytes).

    The kernel reads the command line from the process's own memory, so it is overwritten there; a title that is
    longer than the arguments were is cut. ``name``: the comm, if it is not to be the title.
    """
    _libc.prctl(_PR_SET_NAME, (name or title).encode(), 0, 0, 0)
    # Fields 48 and 49, counted behind the name, which may hold spaces and parentheses.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    room = end - start
    ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)


# --------------------------------------------------------------------------------------------- a holding process


def hold(options: argparse.Namespace) -> None:
    """Hold simulated memory until signalled; prints ``ready PID [CHILD]`` when it does."""
    if options.gpu and len(options.mib) not in (1, len(options.gpu)):
        raise SystemExit("fakegpu.py: give --mib once, or once for each --gpu")
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif options.slow_exit:
        signal.signal(signal.SIGTERM, lambda *_: _leave_slowly(options.slow_exit))
    sizes = options.mib * len(options.gpu) if len(options.mib) == 1 else options.mib
    name = options.title or "fakegpu"
    instance = None if options.gi is None else (options.gi, options.ci)
    held = [allocate(gpu, mib, options.kind, name, instance=instance) for gpu, mib in zip(options.gpu, sizes)]
    if options.share_of is not None:
        for gpu in options.attach:
            held += share(options.share_of, gpu)
    nodes = open_to_ask() if options.monitor else open_nodes([*options.gpu, *options.attach])
    if options.mmap_only:
        for allocation in held:
            allocation.keep_by_mapping_only()
        for node in nodes:
            map_file(node)
            os.close(node)
    if options.title:
        set_title(options.title)
    pids = [os.getpid()]
    if options.fork_child:
        # The child takes over nothing but the descriptors, so forking beside the heartbeat's thread is safe.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            _wait(options.lifetime)
            os._exit(0)
        pids.append(child)
    print("ready", *pids, flush=True)
    if options.vfork:
        _wait_for_child_to_exec()
    if options.zombie_leader:
        threading.Thread(target=_wait, args=(options.lifetime,)).start()
        _exit_this_thread()
    _wait(options.lifetime)


def _wait(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(min(60.0, deadline - time.monotonic()))


def _leave_slowly(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(0)


def _wait_for_child_to_exec() -> None:
    """Wait as a vfork does for a child that never execs: in state D, where SIGTERM still works.

    The child has memory of its own (it is no real vfork), holds nothing, and ends with this process.
    """
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    flags = 0x4000 | signal.SIGCHLD  # CLONE_VFORK
    # With the interpreter's lock held, which the child then has as well.
    if ctypes.PyDLL(None).syscall(ctypes.c_long(clone), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4) == 0:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.closerange(0, 256)
        while True:
            signal.pause()


def _exit_this_thread() -> None:
    """End the main thread alone. The process shows as a zombie whose other thread still holds everything."""
    number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    _libc.syscall(ctypes.c_long(number), ctypes.c_long(0))


# ------------------------------------------------------------------------------------------------ command line


def _gpu_or_all(text: str) -> Union[int, str]:
    return text if text == "*" or text.endswith("/whole") else int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Simulated GPUs: set them up, break them, hold their memory.")
    parser.add_argument("--state", help="the shared folder (default $FAKEGPU_DIR or /run/fakegpu)")
    commands = parser.add_subparsers(dest="command", required=True)

    command = commands.add_parser("setup", help="make a host with idle GPUs")
    command.add_argument("--gpus", type=int, required=True)
    command.add_argument("--name", default=H200["name"])
    command.add_argument("--total", type=int, default=H200["total"], metavar="MIB")
    command.add_argument("--reserved", type=int, default=H200["reserved"], metavar="MIB")
    command.add_argument("--release-delay", type=float, default=0.2, metavar="SECONDS")
    command.add_argument("--host-seed", default="", help="hosts with different seeds have different UUIDs")
    command.add_argument("--driver", default="580.159.04")
    command.add_argument("--state", default=argparse.SUPPRESS, metavar="DIR")

    command = commands.add_parser("set", help="set KEY VALUE, or: set gpu INDEX KEY=VALUE…")
    command.add_argument("key")
    command.add_argument("values", nargs="*")

    command = commands.add_parser("fail", help="answer calls with an NVML error code")
    command.add_argument("function", help="symbol or shell pattern, as nvmlDeviceGet*")
    command.add_argument("gpu", type=_gpu_or_all, help="index or *")
    command.add_argument("code", type=int)
    command.add_argument("--after", type=int, default=0, metavar="CALLS")
    command.add_argument("--times", type=int, metavar="CALLS")

    command = commands.add_parser("hang", help="let calls take long")
    command.add_argument("function")
    command.add_argument("gpu", type=_gpu_or_all)
    command.add_argument("seconds", help="a number or: forever")
    command.add_argument("--after", type=int, default=0, metavar="CALLS")
    command.add_argument("--times", type=int, metavar="CALLS")

    command = commands.add_parser("missing", help="answer as if the library lacked a function")
    command.add_argument("function")

    command = commands.add_parser("proc", help="list a process that need not exist")
    command.add_argument("gpu", type=int)
    command.add_argument("pid", type=int)
    command.add_argument("mib", type=int, help="-1 = not available")
    command.add_argument("kind", nargs="?", default="C", choices="CGMH")

    command = commands.add_parser("clear", help="remove failures, hangs and static processes, or what is named")
    command.add_argument("keys", nargs="*")

    commands.add_parser("show", help="print configuration and allocations as JSON")
    command = commands.add_parser("settle", help="wait until no memory is being released")
    command.add_argument("--timeout", type=float, default=10.0)
    command = commands.add_parser("nodes", help="create device nodes for the GPUs")
    command.add_argument("--dev", help="folder (default $FAKEGPU_DEV or /dev)")

    command = commands.add_parser("hold", help="be a process that holds GPU memory")
    command.add_argument("--gpu", type=int, action="append", default=[])
    command.add_argument("--mib", type=int, action="append", default=[])
    command.add_argument("--kind", default="C", choices="CGMH", help="compute, graphics, MPS, or in no list")
    command.add_argument("--attach", type=int, action="append", default=[], help="only open this GPU's device node")
    command.add_argument("--gi", type=int, metavar="GI", help="in this GPU instance of a GPU in MIG mode")
    command.add_argument("--ci", type=int, default=0, metavar="CI", help="and in this compute instance of it")
    command.add_argument("--share-of", type=int, metavar="PID", help="map what that process holds on the --attach GPUs")
    command.add_argument("--monitor", action="store_true", help="open every GPU as a program that only asks NVML")
    command.add_argument("--title", help="process name, as sglang::scheduler_TP3")
    command.add_argument("--ignore-term", action="store_true")
    command.add_argument("--slow-exit", type=float, default=0.0, metavar="SECONDS", help="take that long after SIGTERM")
    command.add_argument("--fork-child", action="store_true", help="fork a child that inherits the descriptors")
    command.add_argument("--mmap-only", action="store_true", help="keep mappings only, no open descriptors")
    command.add_argument("--vfork", action="store_true", help="wait in state D for a vforked child")
    command.add_argument("--zombie-leader", action="store_true", help="end the main thread, hold in another one")
    command.add_argument("--lifetime", type=float, default=3600.0, metavar="SECONDS", help="exit by itself after this")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    options = _parser().parse_args(argv)
    if options.state:
        os.environ["FAKEGPU_DIR"] = options.state
    if options.command == "setup":
        setup(
            options.gpus,
            name=options.name,
            total=options.total,
            reserved=options.reserved,
            release_delay=options.release_delay,
            host_seed=options.host_seed,
            driver=options.driver,
        )
    elif options.command == "set" and options.key == "gpu":
        set_gpu(int(options.values[0]), **dict(pair.split("=", 1) for pair in options.values[1:]))
    elif options.command == "set":
        set_value(options.key, *options.values)
    elif options.command == "fail":
        fail(options.function, options.gpu, options.code, after=options.after, times=options.times)
    elif options.command == "hang":
        hang(options.function, options.gpu, options.seconds, after=options.after, times=options.times)
    elif options.command == "missing":
        missing(options.function)
    elif options.command == "proc":
        add_process(options.gpu, options.pid, options.mib, options.kind)
    elif options.command == "clear":
        clear(*options.keys)
    elif options.command == "show":
        config = (folder() / "config").read_text().splitlines()
        json.dump({"config": config, "allocations": observe()}, sys.stdout, indent=2)
        print()
    elif options.command == "settle":
        settle(options.timeout)
    elif options.command == "nodes":
        make_nodes(dev=options.dev)
    else:
        hold(options)


if __name__ == "__main__":
    main()
