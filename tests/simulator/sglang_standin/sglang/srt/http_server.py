# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP endpoints, with the real paths, status codes and JSON shapes of the release."""

from __future__ import annotations

import json
import logging
import socketserver
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union
from urllib.parse import urlsplit

from sglang.srt.serving import STARTING, UNHEALTHY, UP, Server
from sglang.srt.tls import server_context, serves_https
from sglang.version import since

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

OPEN_PATHS = ("/health", "/metrics", "/ready")

ADMIN_PATHS = {
    "/flush_cache",
    "/abort_request",
    "/pause_generation",
    "/continue_generation",
    "/set_internal_state",
    "/freeze_gc",
    "/release_memory_occupation",
    "/resume_memory_occupation",
}

CHANGEABLE = {
    "pp_max_micro_batch_size",
    "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc",
}


class PlainHttpServer(ThreadingHTTPServer):
    """Listens at once when made. :raises OSError: when the port is taken."""

    daemon_threads = True
    request_queue_size = 256

    def server_bind(self) -> None:
        # The inherited one looks the host's name up, which takes seconds where there is no DNS.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


class HttpServer(PlainHttpServer):
    """The server's own."""

    def __init__(self, server: Server, context: Optional[ssl.SSLContext]) -> None:
        self.server = server
        super().__init__((server.args.host, server.args.port), Handler)
        if context is not None:
            # The handshake is left to the thread of the request: a client that says nothing must not keep others out.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpServer

    @property
    def state(self) -> Server:
        return self.server.server

    @property
    def route(self) -> str:
        return urlsplit(self.path).path

    # ---- plumbing

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def log_request(self, code: Union[int, str] = "-", size: Union[int, str] = "-") -> None:
        phrase = self.responses.get(int(code), ("",))[0]
        logger.info('INFO:     %s:%d - "%s" %d %s', *self.client_address[:2], self.requestline, code, phrase)

    def answer(self, code: int, body: Any = None, content_type: str = "application/json") -> None:
        if body is None:
            data = b""
        elif isinstance(body, str):
            data = body.encode()
        else:
            data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def allowed(self) -> bool:
        if self.route.startswith(OPEN_PATHS):
            return True
        args = self.state.args
        key = args.api_key
        if self.route in ADMIN_PATHS and since(8) and args.admin_api_key:
            key = args.admin_api_key
        if not key or self.headers.get("Authorization") == "Bearer " + key:
            return True
        self.answer(401, {"error": "Unauthorized"})
        return False

    def dispatch(self, routes: Dict[str, Callable[..., None]], *arguments: Any) -> None:
        handler = routes.get(self.route)
        if handler is None:
            self.answer(404, {"detail": "Not Found"})
        else:
            handler(*arguments)

    # ---- reading

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if not self.allowed():
            return
        state = self.state
        routes: Dict[str, Callable[..., None]] = {
            "/": lambda: self.answer(200, json.dumps("SGLang is running")),
            "/health": self.health,
            "/health_generate": self.health,
            "/ping": self.ping,
            "/server_info": lambda: self.answer(200, state.info()),
            "/get_server_info": lambda: self.answer(200, state.info()),
            "/model_info": lambda: self.answer(200, state.model_info()),
            "/get_model_info": lambda: self.answer(200, state.model_info()),
            "/v1/models": lambda: self.answer(200, state.models()),
            "/flush_cache": lambda: self.flush({}),
        }
        if since(20):
            routes["/ready"] = self.ready
        if since(8):
            routes["/v1/loads"] = lambda: self.answer(200, state.loads())
        if not since(21):
            routes["/get_load"] = lambda: self.answer(200, state.early_loads())
        if state.args.enable_metrics:
            routes["/metrics"] = routes["/metrics/"] = self.metrics
        self.dispatch(routes)

    def health(self) -> None:
        state = self.state
        if state.leaving or state.status == STARTING:
            return self.answer(503)
        # The real one generates a token: it takes a second at least, and twenty when nothing comes.
        time.sleep(state.behaviour.health_seconds)
        state.status = UP if state.healthy else UNHEALTHY
        self.answer(200 if state.status == UP else 503)

    def ready(self) -> None:
        state = self.state
        self.answer(200 if state.status == UP and not state.paused and not state.leaving else 503)

    def ping(self) -> None:
        if since(23):
            self.ready()
        else:
            self.answer(200)

    def metrics(self) -> None:
        self.answer(200, self.state.metrics(), "text/plain; version=0.0.4")

    # ---- changing

    def do_PUT(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self.allowed():
            return
        try:
            body = json.loads(content or b"{}")
        except ValueError:
            self.answer(400, {"object": "error", "message": "bad JSON", "type": "Bad Request", "code": 400})
            return
        routes = {
            "/generate": self.generate,
            "/v1/completions": self.complete,
            "/v1/chat/completions": self.complete,
            "/flush_cache": self.flush,
            "/abort_request": self.abort,
            "/freeze_gc": lambda body: self.answer(200, "Garbage collection frozen.\n", "text/plain"),
            "/pause_generation": self.pause,
            "/continue_generation": self.resume,
            "/set_internal_state": self.set_internal_state,
        }
        with self.state.open_request():
            self.dispatch(routes, body)

    def flush(self, body: Dict[str, Any]) -> None:
        if self.state.flush():
            self.answer(200, "Cache flushed.\nPlease check backend logs for more details.\n", "text/plain")
        else:
            self.answer(400, "Flush cache failed.\n", "text/plain")

    def abort(self, body: Dict[str, Any]) -> None:
        if body.get("abort_all"):
            self.state.abort_all()
        self.answer(200)

    def pause(self, body: Dict[str, Any]) -> None:
        self.state.paused = True
        self.answer(200, {"message": "Generation paused successfully.", "status": "ok"})

    def resume(self, body: Dict[str, Any]) -> None:
        self.state.paused = False
        self.answer(200, {"message": "Generation continued successfully.", "status": "ok"})

    def set_internal_state(self, body: Dict[str, Any]) -> None:
        self.answer(200, [{"updated": set(body.get("server_args", {})) <= CHANGEABLE}])

    # ---- generating

    def stumble(self) -> bool:
        """Whether this request gets 503 instead of tokens."""
        if not self.state.stumbles():
            return False
        self.answer(503, {"error": {"message": "The server is busy. Please try again later."}})
        return True

    def generate(self, body: Dict[str, Any]) -> None:
        if self.stumble():
            return None
        tokens = int((body.get("sampling_params") or {}).get("max_new_tokens") or 128)
        text = body.get("text")
        if body.get("stream"):
            return self.stream(_native, tokens)
        if isinstance(text, list):
            return self.answer(200, [_native(tokens, self.state.generate(tokens)) for _prompt in text])
        return self.answer(200, _native(tokens, self.state.generate(tokens)))

    def complete(self, body: Dict[str, Any]) -> None:
        if self.stumble():
            return None
        tokens = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        model = self.state.args.served_model_name
        chat = self.route.endswith("chat/completions")
        if not body.get("stream"):
            meta = self.state.generate(tokens)
            return self.answer(200, _openai(model, chat, "message", 0, tokens, meta))
        sent = 0

        def chunk(count: int, meta: Dict[str, Any]) -> Dict[str, Any]:
            nonlocal sent
            event = _openai(model, chat, "delta", sent, count, meta)
            sent = count
            return event

        return self.stream(chunk, tokens)

    def stream(self, event: Callable[[int, Dict[str, Any]], Dict[str, Any]], tokens: int) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.state.generate(tokens, lambda count, meta: self.send_event(json.dumps(event(count, meta))))
        self.send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def send_event(self, data: str) -> None:
        payload = "data: {}\n\n".format(data).encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(payload), payload))
        self.wfile.flush()


def _words(start: int, end: int) -> str:
    return " ".join("w{}".format(number % 250) for number in range(start, end))


def _native(tokens: int, meta: Dict[str, Any]) -> Dict[str, Any]:
    return {"text": _words(0, tokens), "output_ids": list(range(3, 3 + tokens)), "meta_info": meta}


def _openai(model: str, chat: bool, part: str, start: int, end: int, meta: Dict[str, Any]) -> Dict[str, Any]:
    finish: Optional[Dict[str, Any]] = meta.get("finish_reason")
    choice: Dict[str, Any] = {"index": 0, "finish_reason": finish["type"] if finish else None}
    if chat:
        choice[part] = {"role": "assistant", "content": _words(start, end)}
    else:
        choice["text"] = _words(start, end)
    return {
        "id": meta.get("id", uuid.uuid4().hex),
        "object": ("chat.completion" + (".chunk" if part == "delta" else "")) if chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 8, "completion_tokens": end, "total_tokens": 8 + end} if finish else None,
    }


def listen(server: Server) -> HttpServer:
    """Bind the port. Ends the process as uvicorn does when it is taken; that comes out only now, after loading."""
    args = server.args
    context = server_context(args) if serves_https(args) else None
    try:
        return HttpServer(server, context)
    except OSError as error:
        logger.error(
            "ERROR:    [Errno %d] error while attempting to bind on address ('%s', %d): address already in use",
            error.errno or 0,
            args.host,
            args.port,
        )
        sys.exit(1)
