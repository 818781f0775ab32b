# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the nodes of one server find each other, and notice that one is gone: ``--dist-init-addr`` of the first one."""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import Any, Callable, List

from sglang.version import since

_POLL = 0.02


class Ring:
    """The connections of one node to the others: the first node has one to each, every other one to the first."""

    def __init__(self, server_args: Any) -> None:
        host, _colon, port = (server_args.dist_init_addr or "").rpartition(":")
        self._address = (host.strip("[]") or "127.0.0.1", int(port or 0))
        self._others = server_args.nnodes - 1
        self._first = server_args.node_rank == 0
        self._peers: List[socket.socket] = []

    def meet(self, check: Callable[[], None]) -> None:
        """Wait until all are there, for as long as it takes; ``check`` is called meanwhile and may raise."""
        if not self._others:
            return
        if self._first:
            self._accept(check)
        else:
            self._connect(check)

    def _accept(self, check: Callable[[], None]) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with listener:
            listener.bind(self._address)
            listener.listen()
            while len(self._peers) < self._others:
                check()
                if select.select([listener], [], [], _POLL)[0]:
                    self._peers.append(listener.accept()[0])
        for peer in self._peers:
            peer.sendall(b"all here\n")

    def _connect(self, check: Callable[[], None]) -> None:
        while not self._peers:
            check()
            try:
                self._peers.append(socket.create_connection(self._address, 5))
            except OSError:
                time.sleep(_POLL)
        while not select.select(self._peers, [], [], _POLL)[0]:
            check()
        self._peers[0].recv(64)

    def finish_loading(self, check: Callable[[], None]) -> None:
        """Say that this node has loaded; the first one waits here for the others.

        :raises RuntimeError: when one of them is gone. Before 0.5.10 the first node waits for it all the same.
        """
        if not self._first:
            for peer in self._peers:
                with suppress(OSError):
                    peer.sendall(b"loaded\n")
            return
        waiting = list(self._peers)
        while waiting:
            check()
            for peer in select.select(waiting, [], [], _POLL)[0]:
                if _read(peer):
                    waiting.remove(peer)
                elif since(10):
                    raise RuntimeError(
                        "NCCL error: remote process exited or there was a network error; another node is gone"
                    )
                else:
                    time.sleep(_POLL)

    def broken(self) -> bool:
        """Whether one of the other nodes is gone."""
        return any(not _read(peer) for peer in select.select(self._peers, [], [], 0)[0]) if self._peers else False


def _read(peer: socket.socket) -> bool:
    try:
        return bool(peer.recv(64))
    except OSError:
        return False
