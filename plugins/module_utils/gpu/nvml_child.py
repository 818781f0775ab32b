# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disposable process in which NVML runs.

A call into the driver may sleep for ever where no signal reaches it, so no time limit inside the
calling process helps.  The parent asks over a pipe with a deadline; when it passes, the child is
killed and, if even that does not end it, abandoned: it is never waited for without a limit.
"""

from __future__ import annotations

import os
import select
import time
from dataclasses import asdict
from typing import Any, Callable, Dict, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors, wire
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import GpuReader
from ansible_collections.inferops.sglang.plugins.module_utils.system import disposable


class ChildHung(Exception):
    """The child did not answer in time."""


class ChildDied(Exception):
    """The child ended without an answer."""


class Child:
    """One disposable process with one NVML session.  Start it, ask it, dismiss it."""

    def __init__(self, make_reader: Callable[[], GpuReader]) -> None:
        requests_out, self._requests = os.pipe()
        self._responses, responses_in = os.pipe()
        parent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            for descriptor in (requests_out, self._requests, self._responses, responses_in):
                os.close(descriptor)
            raise
        if self.pid == 0:
            disposable.run_as_child(
                parent, lambda: _serve(requests_out, responses_in, make_reader()), requests_out, responses_in
            )
        os.close(requests_out)
        os.close(responses_in)
        self._received = b""
        self._open = True

    def ask(self, request: Dict[str, Any], timeout: float) -> Dict[str, Any]:
        """Send one request and return its answer.

        timeout is in seconds.  Raises ChildHung or ChildDied; the child is of no use after either.
        """
        deadline = time.monotonic() + timeout
        try:
            os.write(self._requests, wire.pack(request))
        except BrokenPipeError:
            raise ChildDied from None
        poller = select.poll()
        poller.register(self._responses, select.POLLIN)
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ChildHung
            if not poller.poll(max(1, int(left * 1000))):
                continue
            chunk = os.read(self._responses, 1 << 16)
            if not chunk:
                raise ChildDied
            self._received += chunk
        line, _newline, self._received = self._received.partition(b"\n")
        try:
            return wire.unpack(line)
        except ValueError:
            raise ChildDied from None

    def dismiss(self, patience: float = 0.1) -> bool:
        """End it; returns whether it is gone and reaped after at most `patience` seconds."""
        self._close_pipes()
        return disposable.kill_and_reap(self.pid, patience)

    def reap(self, patience: float = 0.0) -> bool:
        """Whether it has ended, after waiting at most `patience` seconds.  Leaves no zombie behind."""
        return disposable.reap(self.pid, patience)

    def _close_pipes(self) -> None:
        if self._open:
            self._open = False
            os.close(self._requests)
            os.close(self._responses)


def _serve(requests: int, responses: int, reader: GpuReader) -> None:
    """Answer requests until the parent closes the pipe."""
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            answer = wire.pack(_answer(reader, wire.unpack(line)))
            while answer:
                answer = answer[os.write(responses, answer) :]


def _answer(reader: GpuReader, request: Dict[str, Any]) -> Dict[str, Any]:
    index: Optional[int] = request.get("index")
    if index is None:
        try:
            return {"system": asdict(reader.open())}
        except Exception as exc:  # pylint: disable=broad-except
            return {"failure": asdict(nvml_errors.failure_of(exc, "starting NVML"))}
    if request.get("traits"):
        return {"traits": reader.traits(index)}
    question = reader.read if request["values"] else reader.identify
    return {"reading": wire.reading_to_dict(question(index))}
