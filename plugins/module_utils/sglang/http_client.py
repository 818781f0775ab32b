# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small HTTP client for a server on the same host.

It talks to the server directly, whatever the proxy variables say, holds to one deadline for a whole
request (a server that sends a byte now and then cannot prolong it), and bounds the size of an answer.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Union

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls

if TYPE_CHECKING:
    import ssl

MAX_BYTES = 16 * 1024 * 1024

_PROBED = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "::": "::1"}


class HttpError(Exception):
    """A request that got no usable answer."""


class Refused(HttpError):
    """Nothing listens there."""


class TimedOut(HttpError):
    """No complete answer within the time given."""


class Broken(HttpError):
    """The connection broke, or what came back is not HTTP."""


class BadAnswer(HttpError):
    """An answer came, but it is too large or not the JSON that was expected."""


@dataclass(frozen=True)
class Answer:
    """A complete answer; seconds is the time it took."""

    path: str
    status: int
    body: bytes
    seconds: float

    def json(self) -> Any:
        """The decoded body.  Raises BadAnswer."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError as error:
            raise BadAnswer(
                "%s answered %d with something that is not JSON (%s): %s" % (self.path, self.status, error, self.text())
            ) from None

    def json_object(self) -> Dict[str, Any]:
        """The decoded body, which must be a JSON object.  Raises BadAnswer."""
        value = self.json()
        if not isinstance(value, dict):
            raise BadAnswer("%s answered JSON that is not an object: %s" % (self.path, self.text()))
        return value

    def text(self, limit: int = 300) -> str:
        """The beginning of the body for a message, on one line."""
        return " ".join(self.body[:limit].decode("utf-8", "replace").split())


def probe_host(host: str) -> str:
    """The address under which a server is reached on its own host, for the address it listens on."""
    host = host.strip().strip("[]")
    return _PROBED.get(host, host)


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until one point in time."""

    def __init__(self, connection: socket.socket, remaining: Callable[[], float]) -> None:
        super().__init__()
        self._connection = connection
        self._remaining = remaining

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(self._remaining())
        return self._connection.recv_into(buffer)


class _DeadlineSocket:
    """What http.client needs of a socket, with a deadline for all of it together."""

    def __init__(self, connection: socket.socket, remaining: Callable[[], float]) -> None:
        self._connection = connection
        self._remaining = remaining

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(self._remaining())
        self._connection.sendall(data)

    def makefile(self, *args: Any, **kwargs: Any) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._connection, self._remaining))

    def close(self) -> None:
        """Nothing: http.client closes it before the body is read.  Who opened the connection closes it."""


class HttpClient:
    """Asks one server.  A request takes a new connection: a kept one would hide that nobody listens any more."""

    def __init__(
        self,
        host: str,
        port: int,
        api_key: Optional[str] = None,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        tls: Optional[Tls] = None,
    ) -> None:
        """tls says how a server is asked that has a certificate, None for plain HTTP."""
        self.host = probe_host(host)
        self.port = port
        self._tls = tls
        self._context: Optional[ssl.SSLContext] = None
        self._api_key = api_key
        self._max_bytes = max_bytes
        self._clock = clock

    @property
    def address(self) -> str:
        """Host and port as in a URL."""
        return ("[%s]:%d" if ":" in self.host else "%s:%d") % (self.host, self.port)

    def get(self, path: str, timeout: float) -> Answer:
        """GET; timeout in seconds for the whole request.  Raises HttpError."""
        return self._request("GET", path, None, timeout)

    def post(self, path: str, payload: Mapping[str, Any], timeout: float) -> Answer:
        """POST of a JSON object; timeout in seconds for the whole request.  Raises HttpError."""
        return self._request("POST", path, json.dumps(payload).encode(), timeout)

    def _request(self, method: str, path: str, body: Optional[bytes], timeout: float) -> Answer:
        began = self._clock()

        def remaining() -> float:
            left = began + timeout - self._clock()
            if left <= 0:
                raise socket.timeout("timed out")
            return left

        headers = {"Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._api_key:
            headers["Authorization"] = "Bearer " + self._api_key
        connection = http.client.HTTPConnection(self.host, self.port)
        raw: Optional[socket.socket] = None
        try:
            raw = socket.create_connection((self.host, self.port), timeout=remaining())
            if self._tls is not None:
                raw = self._encrypted(raw, self._tls, remaining())
            # Given a socket, HTTPConnection opens none of its own.
            connection.sock = _DeadlineSocket(raw, remaining)
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            content = self._content(path, response)
            return Answer(path, response.status, content, self._clock() - began)
        except ConnectionRefusedError:
            raise Refused("nothing listens on %s" % self.address) from None
        except socket.timeout:
            raise TimedOut("%s on %s gave no answer within %.4g s" % (path, self.address, timeout)) from None
        except (OSError, http.client.HTTPException, UnicodeError, ImportError) as error:
            raise Broken("%s on %s: %s" % (path, self.address, _describe(error))) from None
        finally:
            connection.close()
            if raw is not None:
                raw.close()

    def _encrypted(self, raw: socket.socket, tls: Tls, timeout: float) -> socket.socket:
        """The same connection after the handshake, for which there are so many seconds."""
        if self._context is None:
            self._context = tls.context()
        raw.settimeout(timeout)
        return self._context.wrap_socket(raw, server_hostname=self.host)

    def _content(self, path: str, response: http.client.HTTPResponse) -> bytes:
        content = response.read(self._max_bytes + 1)
        if len(content) > self._max_bytes:
            raise BadAnswer("%s on %s answered more than %d bytes" % (path, self.address, self._max_bytes))
        if response.length:  # reading a part does not raise IncompleteRead by itself
            raise Broken("%s on %s: the connection ended in the middle of the answer" % (path, self.address))
        return content


def _describe(error: Union[OSError, http.client.HTTPException, UnicodeError, ImportError]) -> str:
    text = str(error)
    name = type(error).__name__
    return "%s (%s)" % (text, name) if text else name
