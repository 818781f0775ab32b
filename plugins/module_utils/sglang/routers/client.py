# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talks to one router: sglang-router 0.3, or the SGLang Model Gateway (smg)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional, Protocol
from urllib.parse import quote

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    BadAnswer,
    HttpClient,
    HttpError,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import HTTPS, Place
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.workers import Worker, parse_worker
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

if TYPE_CHECKING:
    import ssl

_LONGEST_MESSAGE = 300  # characters
# What a router without /workers answers on: that was so until sglang-router 0.2.
_EARLIER = "/list_workers"


class Http(Protocol):
    """What is needed of a client (see http_client.HttpClient)."""

    def get(self, path: str, timeout: float) -> Answer:
        """Raises HttpError."""

    def post(self, path: str, payload: Mapping[str, Any], timeout: float) -> Answer:
        """Raises HttpError."""

    def delete(self, path: str, timeout: float) -> Answer:
        """Raises HttpError."""


@dataclass(frozen=True)
class RouterTls(Tls):
    """How a router with a certificate is asked: it is on another host, so the certificate and its name count.

    authorities is the file that its chain is checked with, "" for those that the host trusts.
    """

    validate: bool = True

    def context(self) -> ssl.SSLContext:
        """For the client's side of a connection.  Raises OSError, and ImportError for a Python without ssl."""
        import ssl

        if not self.validate:
            return Tls().context()
        return ssl.create_default_context(cafile=self.authorities or None)


@dataclass(frozen=True)
class Job:
    """What a router is doing about a worker; status is pending, processing, failed or another word of its own."""

    status: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether it has given up."""
        return self.status.lower() == "failed"


class RouterClient:
    """One router.  Every call raises RouterError where it gets no usable answer."""

    def __init__(self, place: Place, http: Http, timeout: float) -> None:
        """timeout is in seconds, for each request."""
        self.url = place.url
        self._prefix = place.path
        self._http = http
        self._timeout = timeout

    def workers(self) -> List[Worker]:
        """All workers that it knows, in its order."""
        answer = self._ask("/workers", lambda path: self._http.get(path, self._timeout))
        if answer.status == 404:
            raise RouterError("unknown_router", self._not_a_router())
        self._check(answer, "its workers")
        try:
            rows = answer.json_object().get("workers")
            if not isinstance(rows, list):
                raise ValueError("there is no list of workers in the answer")
            return [parse_worker(row) for row in rows]
        except (BadAnswer, ValueError) as error:
            raise RouterError(
                "unknown_router",
                "The router %s answers /workers with something else than a list of workers: %s. Is url "
                "(sglang_router_url) that of sglang-router 0.3 or smg?" % (self.url, error),
            ) from None

    def remove(self, worker: Worker) -> None:
        """Take a worker out; it may be in the list for some more seconds."""
        answer = self._ask(_path_of(worker.id), lambda path: self._http.delete(path, self._timeout))
        if answer.status != 404:  # somebody else has taken it out
            self._check(answer, "the removal of %s" % worker.place.url)

    def add(self, new: Mapping[str, Any]) -> Optional[str]:
        """Put a worker in; its id, or None where the router has the URL already."""
        answer = self._ask("/workers", lambda path: self._http.post(path, new, self._timeout))
        if answer.status == 409:
            return None
        self._check(answer, "the worker %s" % new.get("url"))
        try:
            return str(answer.json_object().get("worker_id") or "")
        except BadAnswer:
            return ""

    def job(self, worker_id: str) -> Job:
        """What became of a worker that was put in."""
        if not worker_id:
            return Job()
        answer = self._ask(_path_of(worker_id), lambda path: self._http.get(path, self._timeout))
        try:
            status = answer.json_object().get("job_status")
        except BadAnswer:
            return Job()
        if not isinstance(status, Mapping):
            return Job()
        return Job(str(status.get("status") or ""), visible(str(status.get("message") or ""), _LONGEST_MESSAGE))

    def _ask(self, path: str, request: Callable[[str], Answer]) -> Answer:
        try:
            answer = request(self._prefix + path)
        except HttpError as error:
            raise RouterError(
                "router_unreachable",
                "The router %s does not answer: %s. Start it, or correct url (sglang_router_url)." % (self.url, error),
            ) from None
        if answer.status in (401, 403):
            raise RouterError(
                "router_unauthorized",
                "The router %s answers %d on %s: give its key in api_key (sglang_router_api_key)."
                % (self.url, answer.status, path),
            )
        return answer

    def _check(self, answer: Answer, what: str) -> None:
        if not 200 <= answer.status < 300:
            raise RouterError(
                "router_refused",
                "The router %s answers %d to %s: %s" % (self.url, answer.status, what, answer.text() or "nothing"),
            )

    def _not_a_router(self) -> str:
        earlier = ""
        try:
            if self._http.get(self._prefix + _EARLIER, self._timeout).status == 200:
                earlier = " It is a sglang-router before 0.3, which does not keep what a worker was registered with."
        except HttpError:
            pass
        return "The router %s has no /workers.%s Use sglang-router 0.3 or smg, or correct url (sglang_router_url)." % (
            self.url,
            earlier,
        )


def _path_of(worker_id: str) -> str:
    return "/workers/" + quote(worker_id, safe="")


def open_router(
    place: Place, api_key: Optional[str], timeout: float, ca_path: str = "", validate: bool = True
) -> RouterClient:
    """A client for the router at a place; ca_path and validate count for https."""
    tls = RouterTls(ca_path, validate) if place.scheme == HTTPS else None
    return RouterClient(place, HttpClient(place.host, place.port, api_key, tls=tls), timeout)
