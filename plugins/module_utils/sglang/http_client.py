# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small HTTP client for a server on the same host.

It talks to the server directly, whatever the proxy variables say, holds to one deadline for a whole
request (a server that sends a byte now and then cannot prolong it), and bounds all that it takes of an
answer.  It follows no redirection and unpacks nothing.
"""

from __future__ import annotations

import errno
import http.client
import io
import json
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Union

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

if TYPE_CHECKING:
    import ssl

# The largest answers, of /server_info and /metrics with many ranks, take a few hundred KiB.
MAX_BYTES = 4 * 1024 * 1024
# What may come beside a body: the lines of the head, and the sizes of chunks.
_MAX_AROUND = 1024 * 1024
# SGLang answers these without a key.  They are asked before it is known who listens, and whoever does would learn it.
_WITHOUT_KEY = ("/health", "/metrics")

_LONGEST_REASON = 300  # characters
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
        """The decoded body, which may be neither ambiguous nor excessive.  Raises BadAnswer."""
        try:
            return bounded_json.loads(self.body.decode("utf-8"), strict=True)
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
        return visible(" ".join(self.body[:limit].decode("utf-8", "replace").split()), limit)


def probe_host(host: str) -> str:
    """The address under which a server is reached on its own host, for the address it listens on."""
    host = host.strip().strip("[]")
    return _PROBED.get(host, host)


class _TooMuch(OSError):
    """More came than any answer may be."""


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until one point in time, and so many bytes at most.

    http.client itself can be made to read without an end: by a chunk of a negative size, or by interim
    answers one after the other.
    """

    def __init__(self, connection: socket.socket, remaining: Callable[[], float], most: int) -> None:
        super().__init__()
        self._connection = connection
        self._remaining = remaining
        self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(self._remaining())
        received = self._connection.recv_into(buffer)
        self._left -= received
        if self._left < 0:
            raise _TooMuch(errno.EMSGSIZE, "the answer is too large")
        return received


class _DeadlineSocket:
    """What http.client needs of a socket, with a deadline for all of it together."""

    def __init__(self, connection: socket.socket, remaining: Callable[[], float], most: int) -> None:
        self._connection = connection
        self._remaining = remaining
        self._most = most

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(self._remaining())
        self._connection.sendall(data)

    def makefile(self, *args: Any, **kwargs: Any) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._connection, self._remaining, self._most))

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

    def delete(self, path: str, timeout: float) -> Answer:
        """DELETE; timeout in seconds for the whole request.  Raises HttpError."""
        return self._request("DELETE", path, None, timeout)

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
        if self._api_key and not path.startswith(_WITHOUT_KEY):
            headers["Authorization"] = "Bearer " + self._api_key
        connection = http.client.HTTPConnection(self.host, self.port)
        raw: Optional[socket.socket] = None
        try:
            raw = socket.create_connection((self.host, self.port), timeout=remaining())
            if self._tls is not None:
                raw = self._encrypted(raw, self._tls, remaining())
            # Given a socket, HTTPConnection opens none of its own.
            connection.sock = _DeadlineSocket(raw, remaining, self._max_bytes + _MAX_AROUND)
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            content = self._content(path, response)
            return Answer(path, response.status, content, self._clock() - began)
        except ConnectionRefusedError:
            raise Refused("nothing listens on %s" % self.address) from None
        except socket.timeout:
            raise TimedOut("%s on %s gave no answer within %.4g s" % (path, self.address, timeout)) from None
        except _TooMuch:
            raise self._too_large(path) from None
        # ValueError: what http.client makes of some sizes that are none.
        except (OSError, http.client.HTTPException, ValueError, ImportError) as error:
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
        if len(set(response.headers.get_all("content-length") or ())) > 1:
            raise Broken("%s on %s: the answer has two lengths" % (path, self.address))
        content = response.read(self._max_bytes + 1)
        if len(content) > self._max_bytes:
            raise self._too_large(path)
        if response.length:  # reading a part does not raise IncompleteRead by itself
            raise Broken("%s on %s: the connection ended in the middle of the answer" % (path, self.address))
        return content

    def _too_large(self, path: str) -> BadAnswer:
        return BadAnswer("%s on %s answered more than %d bytes" % (path, self.address, self._max_bytes))


def _describe(error: Union[OSError, http.client.HTTPException, ValueError, ImportError]) -> str:
    text = visible(str(error), _LONGEST_REASON)  # it may quote what came
    name = type(error).__name__
    return "%s (%s)" % (text, name) if text else name
