# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark clients of the releases, run and listened to as sglang_benchmark does, on a server of a few lines."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import ENVIRONMENT, PATIENCE

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark import client_command, results
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_process import (
    ClientProcess,
    Launch,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

KEY = "kq-client-1f0c73de"
REQUESTS, TOKENS = 6, 16
TEXTS = ["Tell me number %d of your stories." % number for number in range(REQUESTS)]
# A word is a token.
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {
        "type": "WordLevel",
        "vocab": {"[UNK]": 0, **{"w%d" % number: number + 1 for number in range(50)}},
        "unk_token": "[UNK]",
    },
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "[UNK]",
    "chat_template": "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}{% endfor %}",
}
PARAMS = {
    "dataset": "custom",
    "input_len": 12,
    "output_len": TOKENS,
    "warmup_requests": 0,
    "seed": 42,
    "repeats": 2,
    "chat_template": "auto",
    "timeout": PATIENCE,
    "allow_other_load": False,
}


class Server(ThreadingHTTPServer):
    """As much of SGLang as its client uses; what it was asked is kept."""

    daemon_threads = True

    def __init__(self):
        self.prompts, self.flushed, self.keys = [], 0, set()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.server.keys.add(self.headers.get("authorization"))
        states = [{"avg_spec_accept_length": 2.5, "api_key": KEY}]
        self.answer({"data": [{"id": "m"}], "api_key": KEY, "internal_states": states, "launch_command": KEY})

    def do_POST(self):
        self.server.keys.add(self.headers.get("authorization"))
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if self.path.startswith("/flush_cache"):
            self.server.flushed += 1
            self.answer({})
            return
        self.server.prompts.append(body["text"])
        tokens = body["sampling_params"]["max_new_tokens"]
        assert body["sampling_params"]["ignore_eos"] and body["sampling_params"]["temperature"] == 0
        self.send_response(200)
        self.send_header("connection", "close")
        self.end_headers()
        for done in (1, tokens // 2, tokens):
            meta = {"id": "x", "completion_tokens": done, "prompt_tokens": 7}
            if done == tokens:
                # As in SGLang, only the last part of an answer has them.
                meta.update(spec_verify_ct=done // 2, spec_accept_histogram=[1, done // 2 - 1])
            part = {"text": " ".join("w%d" % number for number in range(done)), "meta_info": meta}
            self.wfile.write(b"data: " + json.dumps(part).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


@pytest.fixture
def server():
    with Server() as found:
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with one, and the package that the clients import and do not use here."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "datasets.py").write_text("load_dataset = None\n")
    return tmp_path


def test_a_client_is_listened_to(release, server, tokenizer, tmp_path):
    url = client_command.base_url("127.0.0.1", server.server_port, tls=False)
    words = client_command.client_words(url, str(tokenizer), str(tokenizer), 2, REQUESTS, PARAMS)
    of = Release("r1", "2026-01-02T03:04:05Z", "main", "process", [release.python])
    task = client_command.client_task(words, 2, TEXTS, REQUESTS, of, PARAMS, KEY, str(tokenizer), tls=False)
    client = ClientProcess(tmp_path / "main.benchmark", ProcFs(), "0" * 16)
    client.start(Launch([release.python, "-"], {**ENVIRONMENT, "PYTHONPATH": str(tokenizer / "packages")}), task)
    try:
        until = time.monotonic() + PATIENCE
        while client.running() and time.monotonic() < until:
            client.touch()
            time.sleep(0.1)
        events = client.events()
    finally:
        client.end()
    assert [event["event"] for event in events if event["event"] not in ("progress", "repeat_begins")] == [
        *("client", "repeat", "repeat", "done"),
    ], (events, client.log([])[-30:])
    newer = release.numbers >= (0, 5, 15)
    assert events[0]["module"] == ("sglang.benchmark.serving" if newer else "sglang.bench_serving")
    assert (events[0]["version"], events[0]["chat_template"]) == (release.version, True)
    for event in events:
        if event["event"] != "repeat":
            continue
        found = results.repeat_of(event, REQUESTS, speculates=True)
        assert (found["completed"], found["total_output_tokens"]) == (REQUESTS, REQUESTS * TOKENS)
        assert (found["accept_length"], found["accept_length_source"]) == (2.0, "requests")
        assert found["verify_steps"] == REQUESTS * TOKENS // 2 and found["server_accept_length"] == 2.5
        assert found["correct_drafts_histogram"] == [REQUESTS, REQUESTS * (TOKENS // 2 - 1)]
        assert event["requests"]["flush"] == 200
        assert all(found[name] is not None for name in results.NUMBERS)
    assert KEY not in json.dumps(events) and server.flushed == 2 and server.keys == {"Bearer " + KEY}
    # Two to warm up, and then each prompt once, in the words of the chat template.
    assert len(server.prompts) == 2 * (2 + REQUESTS)
    assert set(server.prompts[2 : 2 + REQUESTS]) == {"<user> " + text for text in TEXTS}
