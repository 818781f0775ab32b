# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends processes that were identified by PID and start time, and says what became of each.

The signal goes through a pidfd where the kernel has one (Linux 5.3, Python 3.9): it can then
never reach a later process of the same PID.  Elsewhere the identity is read again right before
the signal.  Nothing here decides *who* is to be ended.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Protocol, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs

# Without a pidfd the end of a process is noticed by looking, this often (seconds).
_POLL = 0.02
# A process that is being reaped shows no sign of it through a pidfd before its threads are gone,
# so even waits on descriptors look at /proc this often (seconds).
_RECHECK = 0.25


@dataclass(frozen=True)
class Outcome:
    """What became of one process.

    action: terminated (ended after SIGTERM), killed (needed SIGKILL), vanished (was gone before any
    signal reached it) or survived.  signals are names in the order sent; seconds run from the first
    signal to the end, or to giving up; state is the kernel's letter of a survivor, else "";
    error says why a signal could not be sent.
    """

    identity: ProcessIdentity
    action: str
    signals: Tuple[str, ...]
    seconds: float
    state: str = ""
    error: str = ""


class Witness(Protocol):
    """Is told what is done to processes, as it is done."""

    def sending(self, identity: ProcessIdentity, name: str) -> None:
        """A process is about to be sent a signal, which is named."""

    def ended(self, outcome: Outcome) -> None:
        """What became of a process, also of one that got no signal."""


class _Nobody:
    """A witness that does not care."""

    def sending(self, identity: ProcessIdentity, name: str) -> None:
        pass

    def ended(self, outcome: Outcome) -> None:
        pass


class Handle:
    """A process that is open for signalling; use `Signaller.open`."""

    def __init__(self, identity: ProcessIdentity, procfs: ProcFs, descriptor: Optional[int]) -> None:
        self.identity = identity
        self.descriptor = descriptor
        self._procfs = procfs

    def send(self, number: signal.Signals) -> bool:
        """Send a signal.  False: the process is gone.  Raises PermissionError."""
        try:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, number)  # type: ignore[attr-defined,unused-ignore]
            elif self._procfs.alive(self.identity):
                os.kill(self.identity.pid, number)
            else:
                return False
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class Signaller:
    """Opens processes for signalling."""

    def __init__(self, procfs: ProcFs) -> None:
        self._procfs = procfs

    def open(self, identity: ProcessIdentity) -> Optional[Handle]:
        """A handle to exactly this process, or None where it is gone (or only a zombie is left)."""
        descriptor: Optional[int] = None
        opener = getattr(os, "pidfd_open", None)
        if opener is not None and hasattr(signal, "pidfd_send_signal"):
            try:
                descriptor = opener(identity.pid, 0)
            except ProcessLookupError:
                return None
            except OSError as exc:
                # An older kernel, a seccomp filter, or no descriptors left: fall back to kill().
                if exc.errno not in (errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EINVAL):
                    raise
        # The order matters: the descriptor is open, so if /proc still shows our process now, the
        # descriptor is our process's, whatever happens to the PID later.
        if not self._procfs.alive(identity):
            if descriptor is not None:
                os.close(descriptor)
            return None
        return Handle(identity, self._procfs, descriptor)


class _Pending:
    """A target that has been signalled and whose end is awaited."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.signals: List[str] = []
        self.error = ""


def _wait_for_exits(
    pending: Dict[ProcessIdentity, _Pending],
    seconds: float,
    procfs: ProcFs,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Dict[ProcessIdentity, float]:
    """Wait until all have ended or the time is over; return those that ended, with the time of it."""
    ended: Dict[ProcessIdentity, float] = {}
    deadline = clock() + seconds
    while True:
        # A zombie counts as ended: it holds nothing any more, reaping it is its parent's business.
        for identity in pending:
            if identity not in ended and not procfs.alive(identity):
                ended[identity] = clock()
        left = deadline - clock()
        if len(ended) == len(pending) or left <= 0:
            return ended
        descriptors = [
            item.handle.descriptor
            for identity, item in pending.items()
            if identity not in ended and item.handle.descriptor is not None
        ]
        if len(descriptors) == len(pending) - len(ended):
            poller = select.poll()
            for descriptor in descriptors:
                poller.register(descriptor, select.POLLIN)
            poller.poll(max(1, int(min(left, _RECHECK) * 1000)))
        else:
            sleep(min(left, _POLL))


def end_processes(
    targets: Sequence[ProcessIdentity],
    grace: float,
    kill_timeout: float,
    procfs: ProcFs,
    signaller: Optional[Signaller] = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    witness: Optional[Witness] = None,
) -> List[Outcome]:
    """End all targets together and return one Outcome for each, in the order given.

    SIGTERM to all, up to `grace` seconds for them to end, SIGKILL to the rest, up to `kill_timeout`
    seconds more.  grace 0 goes straight to SIGKILL.  Never takes longer than the two together, also
    when a process sits in an uninterruptible wait in the driver.  One that may not be signalled
    (another user's, without root) survives with its error.  The witness hears of each signal before it is
    sent, and of each end as soon as it is known.
    """
    signaller = signaller or Signaller(procfs)
    witness = witness or _Nobody()
    began = clock()
    outcomes: Dict[ProcessIdentity, Outcome] = {}
    pending: Dict[ProcessIdentity, _Pending] = {}

    def settle(outcome: Outcome) -> None:
        outcomes[outcome.identity] = outcome
        witness.ended(outcome)

    try:
        for identity in targets:
            if identity in pending or identity in outcomes:
                continue
            handle = signaller.open(identity)
            if handle is None:
                settle(Outcome(identity, "vanished", (), 0.0))
            else:
                pending[identity] = _Pending(handle)

        rounds = [(signal.SIGTERM, grace, "terminated")] if grace > 0 else []
        rounds.append((signal.SIGKILL, kill_timeout, "killed"))
        for number, seconds, verb in rounds:
            for identity, item in pending.items():
                witness.sending(identity, number.name)
                try:
                    reached = item.handle.send(number)
                except PermissionError as exc:
                    item.error = "%s: %s" % (number.name, exc.strerror)
                    continue
                if reached:
                    item.signals.append(number.name)
            waiting = {identity: item for identity, item in pending.items() if not item.error}
            for identity, ended_at in _wait_for_exits(waiting, seconds, procfs, clock, sleep).items():
                item = pending.pop(identity)
                item.handle.close()
                action = verb if item.signals else "vanished"
                # It ended between the two rounds: the last signal that reached it did it.
                if item.signals and item.signals[-1] != number.name:
                    action = "terminated"
                settle(Outcome(identity, action, tuple(item.signals), ended_at - began))

        for identity, item in pending.items():
            alive = procfs.alive(identity)
            settle(
                Outcome(
                    identity,
                    "survived" if alive else "vanished",
                    tuple(item.signals),
                    clock() - began,
                    state=procfs.state(identity) if alive else "",
                    error=item.error if alive else "",
                )
            )
    finally:
        for item in pending.values():
            item.handle.close()
    return [outcomes[identity] for identity in dict.fromkeys(targets)]
