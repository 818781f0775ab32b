# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of HTTP that does as a test says, down to the bytes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading


class RawServer:
    """Takes one connection, reads the request, and lets `answer` do with the socket what it wants.

    With a pair (see certificates.py) it serves https.
    """

    def __init__(self, answer, family=socket.AF_INET, address="127.0.0.1", pair=None, port=0):
        self.request = b""
        self._answer = answer
        self._context = None
        if pair is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(pair.certificate, pair.key)
        self._done = threading.Event()
        self._listener = socket.socket(family)
        self._listener.bind((address, port))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        try:
            connection, _peer = self._listener.accept()
            if self._context is not None:
                connection.settimeout(10)
                connection = self._context.wrap_socket(connection, server_side=True)
        except OSError:  # nobody came, or the two did not shake hands
            return
        with connection:
            self.request = connection.recv(65536)
            while b"\r\n\r\n" not in self.request:
                self.request += connection.recv(65536)
            try:
                self._answer(connection, self._done)
            except OSError:
                pass

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exc):
        self._done.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for somebody to come
        self._listener.close()
        self._thread.join(5)


def reply(status, body, headers=()):
    head = ["HTTP/1.1 %d X" % status, "content-length: %d" % len(body), *headers]
    data = "\r\n".join(head).encode() + b"\r\n\r\n" + body
    return lambda connection, _done: connection.sendall(data)
