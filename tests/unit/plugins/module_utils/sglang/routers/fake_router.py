# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A router of either dialect, over HTTP or called directly, that does as a test says.

The shapes of its answers are those of sglang-router 0.3.2 and smg 1.13.0.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SGLANG_ROUTER, SMG = "sglang-router", "smg"
MODEL = "llama"


def row(url, number, dialect=SGLANG_ROUTER, healthy=True, model=MODEL, **more):
    """A worker as a router lists it."""
    made = {
        "id": "00000000-0000-4000-8000-%012d" % number,
        "url": url,
        "priority": 50,
        "cost": 1.0,
        "worker_type": "regular",
        "is_healthy": healthy,
        "load": 0,
        "model_id": model,
    }
    labels = {"model_path": "/models/" + model, "served_model_name": model}
    if dialect == SMG:
        made.update(labels=labels, models=[{"id": model}], connection_mode="http", runtime_type="sglang")
        made.update(http2=False, engine_load={"loads": [{"dp_rank": 0, "num_running_reqs": 3}]})
        made.update(status="ready" if healthy else "not_ready", max_connection_attempts=20)
    else:
        made.update(metadata=labels, connection_mode="HTTP", disable_health_check=False)
    made.update(more)
    return made


class Registry:
    """The workers of a router, and what it does with them.

    clock moves its state on.  adding, healthy and removing are the seconds that each takes; failed_job is
    what becomes of a worker that is added; down, denied and without_workers are faults that may be set at
    any time; events is what it was asked to change.  stuck is why a removal fails.
    """

    def __init__(self, dialect=SGLANG_ROUTER, clock=time.monotonic):
        self.dialect = dialect
        self.clock = clock
        self.adding, self.healthy, self.removing = 0.0, 0.5, (5.0 if dialect == SMG else 0.0)
        self.failed_job = self.stuck = ""
        self.down = self.without_workers = self.earlier = False
        self.denied = 0
        self.answer = None
        self.events = []
        self.rows = []
        self._leaving = {}
        self._coming = []
        self._number = 100

    def have(self, *urls, **more):
        """Let it know workers."""
        for url in urls:
            self._number += 1
            self.rows.append(row(url, self._number, self.dialect, **more))
        return self

    def urls(self):
        return [item["url"] for item in self.list()]

    def list(self):
        now = self.clock()
        self.rows = [item for item in self.rows if self._leaving.get(item["id"], now + 1) > now]
        for made in list(self._coming):
            appears, well, item = made
            if now >= appears and item not in self.rows:
                self.rows.append(item)
            if now >= well:
                item["is_healthy"] = True
                if self.dialect == SMG:
                    item["status"] = "ready"
                self._coming.remove(made)
        return self.rows

    def delete(self, worker_id):
        found = [item for item in self.list() if item["id"] == worker_id]
        if not found:
            return False
        self.events.append(("delete", found[0]["url"]))
        if self.stuck:
            return True
        self._leaving[worker_id] = self.clock() + self.removing
        if self.dialect == SMG:
            found[0].update(is_healthy=False, status="draining")
        self.list()
        return True

    def post(self, new):
        """The id of a new worker, None where the router has its URL already."""
        if self.dialect == SMG and new["url"] in self.urls():
            return None
        self.events.append(("post", new))
        self._number += 1
        kept = {name: value for name, value in new.items() if name not in ("api_key", "labels", "metadata", "url")}
        item = row(new["url"], self._number, self.dialect, healthy=False, **kept)
        item["labels" if self.dialect == SMG else "metadata"].update(new.get("labels", {}))
        if not self.failed_job:
            now = self.clock()
            self._coming.append((now + self.adding, now + self.adding + self.healthy, item))
        return item["id"]

    def job(self):
        why = self.failed_job or self.stuck
        status = "failed" if why else "processing"
        return {"job_type": "AddWorker", "status": status, "message": why or None, "timestamp": 1}


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

    def reply(self, status, content):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _serve(self):
        registry, server = self.server.registry, self.server
        length = int(self.headers.get("content-length") or 0)
        content = json.loads(self.rfile.read(length)) if length else None
        if server.api_key and self.headers.get("authorization") != "Bearer " + server.api_key:
            return self.reply(401, {"error": "Unauthorized"})
        if not self.path.startswith(server.prefix):
            return self.reply(404, {})
        path = self.path[len(server.prefix) :]
        if registry.denied:
            return self.reply(registry.denied, {"error": "no"})
        if path == "/list_workers" and registry.earlier:
            return self.reply(200, {"urls": []})
        if registry.without_workers or not path.startswith("/workers"):
            return self.reply(404, {})
        if registry.answer is not None:
            return self.reply(200, registry.answer)
        worker_id = path[len("/workers/") :]
        if self.command == "DELETE":
            return self.reply(202 if registry.delete(worker_id) else 404, {"status": "accepted"})
        if self.command == "POST":
            made = registry.post(content)
            if made is None:
                return self.reply(409, {"error": "exists", "code": "WORKER_ALREADY_EXISTS"})
            return self.reply(202, {"status": "accepted", "worker_id": made, "location": "/workers/" + made})
        if worker_id:
            return self.reply(200, {"id": worker_id, "job_status": registry.job()})
        rows = registry.list()
        return self.reply(200, {"workers": rows, "total": len(rows), "stats": {}})

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def do_DELETE(self):
        self._serve()


@contextlib.contextmanager
def served(registry, api_key="", prefix=""):
    """Serve a registry over HTTP; the value is its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.registry, server.api_key, server.prefix = registry, api_key, prefix
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield "http://127.0.0.1:%d%s" % (server.server_address[1], prefix)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
