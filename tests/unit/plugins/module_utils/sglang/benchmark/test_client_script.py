# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script that runs in SGLang's interpreter, here in this one: with modules that are made of text."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import types

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_script import SCRIPT

META = {"id": "x", "completion_tokens": 32, "spec_verify_ct": 11, "spec_accept_histogram": [2, 3, 0, 6]}


@pytest.fixture
def script():
    """Its names."""
    names = {"__name__": "script"}
    exec(compile(SCRIPT, "client_script", "exec"), names)
    return types.SimpleNamespace(**names)


class Told:
    """In place of what goes to standard output."""

    def __init__(self):
        self.events = []

    def send(self, event, **values):
        self.events.append({"event": event, **values})


CLIENT = """
import json
import sys

requests = None
ASYNC_REQUEST_FUNCS = {}

class Output:
    def __init__(self, success, error=""):
        self.success, self.error = success, error

async def ask(chunks, pbar=None):
    for chunk in chunks:
        json.loads(chunk)
    return Output(True) if chunks else Output(False, "Traceback (most recent call last):\\n  x\\nOSError: refused\\n")

ASYNC_REQUEST_FUNCS["sglang"] = ask
"""
EARLY = (
    CLIENT
    + """
if __name__ == "__main__":
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-file")
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    run(args)
"""
)
LATE = (
    CLIENT
    + """
def cli_main():
    run(None)

if "__main__" == __name__:
    cli_main()
"""
)


def client(tmp_path, source, run=None):
    """A module of that source, whose run() is given."""
    file = tmp_path / "client.py"
    file.write_text(source)
    module = types.ModuleType("client")
    module.__file__ = str(file)
    exec(compile(source, str(file), "exec"), vars(module))
    module.run = run
    return module


TASK = {"warmups": 1, "requests": 2, "backend": "sglang", "flush_headers": {}, "must_flush": True}
ANSWER = [
    json.dumps({"text": "a", "meta_info": {"id": "x", "completion_tokens": 3}}),
    json.dumps({"text": "ab", "meta_info": META}),
]


def repeat(script, tmp_path, source, requests, result=None, words=()):
    """One repeat of a client that makes these requests and leaves this result."""

    def run(args):
        async def all_of_them():
            return [await module.ASYNC_REQUEST_FUNCS["sglang"](chunks) for chunks in requests]

        asyncio.run(all_of_them())
        output = args.output_file if args is not None else sys.argv[sys.argv.index("--output-file") + 1]
        if result is not None:
            with open(output, "a") as stream:
                stream.write(json.dumps(result) + "\n")
        if "--fail" in words:
            raise ValueError("it is broken. Traceback (most recent call last):\n  x\nOSError: the end")
        if "--leave" in words:
            sys.exit(3)

    module = client(tmp_path, source, run)
    try:
        return script.one_repeat(module, script.main_program(module), TASK, [], Told())
    finally:
        # The module is as it was.
        assert module.requests is None and module.json is json and module.ASYNC_REQUEST_FUNCS["sglang"] is module.ask


@pytest.mark.parametrize("source", [EARLY, LATE], ids=["early", "late"])
def test_what_is_heard_of_the_requests(script, tmp_path, source, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x"])
    line = {
        "server_info": {"api_key": "kq-1"},
        "request_rate": float("inf"),
        "completed": 2,
        "accept_length": None,
        "tag": "kq-1",
        "flag": True,
    }
    found = repeat(script, tmp_path, source, [ANSWER, ANSWER, ANSWER], line)
    # The first one is for the warm-up; of a line only numbers are kept.
    assert found["result"] == {"request_rate": None, "completed": 2, "accept_length": None}
    assert found["requests"] == {
        "listened": True,
        "requests": 2,
        "succeeded": 2,
        "heard": 2,
        "verified": 2,
        "verify_steps": 22,
        "verified_tokens": 64,
        "histogram": [4, 6, 0, 12],
        "errors": [],
        "flush": None,
    }


def test_requests_that_fail_and_answers_without_speculation(script, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x"])
    found = repeat(script, tmp_path, LATE, [ANSWER, ANSWER[:1], []])
    assert found["result"] is None
    heard = found["requests"]
    assert (heard["requests"], heard["succeeded"], heard["heard"], heard["verified"]) == (2, 1, 1, 0)
    assert heard["errors"] == ["OSError: refused"] and heard["histogram"] == []


def test_nobody_was_heard(script, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x"])
    assert repeat(script, tmp_path, LATE, [])["requests"]["listened"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [("--fail", "ValueError: it is broken. OSError: the end"), ("--leave", "the client ended with status 3")],
)
def test_a_client_that_fails(script, tmp_path, monkeypatch, words, message, capsys):
    monkeypatch.setattr(sys, "argv", ["x"])
    with pytest.raises(script.Failed) as error:
        repeat(script, tmp_path, LATE, [ANSWER], words=[words])
    assert (error.value.reason, str(error.value)) == ("client_failed", message)


def test_answers_of_requests_that_are_under_way_at_the_same_time(script):
    """Each answer is that of the request whose function reads it."""
    listener = script.Listener(Told(), 0, 2)
    reader = script.Reader(json)

    async def ask(steps):
        for number in range(3):
            await asyncio.sleep(0)
            reader.loads(json.dumps({"meta_info": {"completion_tokens": number, "spec_verify_ct": steps}}))
        return types.SimpleNamespace(success=True)

    async def both():
        function = listener.wrap(ask)
        await asyncio.gather(function(5), function(7))

    asyncio.run(both())
    assert sorted(record["spec"]["spec_verify_ct"] for record in listener.records) == [5, 7]
    assert reader.dumps is json.dumps


@pytest.mark.parametrize("value", ["[]", "3", '{"meta_info": []}', '{"meta_info": null}', "{}"])
def test_answers_that_are_none(script, value):
    token = script.CURRENT.set({})
    try:
        script.Reader(json).loads(value)
        assert script.CURRENT.get() == {}
    finally:
        script.CURRENT.reset(token)


class Requests:
    """In place of the module requests: answers in turn."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.asked = []

    def get(self, url):
        return url

    def post(self, url, **options):
        self.asked.append((url, options.get("headers")))
        return types.SimpleNamespace(status_code=self.statuses.pop(0), raise_for_status=self.fail)

    def fail(self):
        raise OSError("400")


def test_a_flush_is_tried_again_while_the_server_is_busy(script, monkeypatch):
    monkeypatch.setattr(script.time, "sleep", lambda seconds: None)
    listener, requests = script.Listener(Told(), 0, 1), Requests(400, 400, 200)
    wrapped = script.Requests(requests, listener, {"Authorization": "Bearer admin"}, True)
    wrapped.post("http://x/flush_cache", headers={"Authorization": "Bearer user", "A": "b"})
    assert listener.flush == 200 and len(requests.asked) == 3
    assert requests.asked[0][1] == {"Authorization": "Bearer admin", "A": "b"}
    assert wrapped.get("u") == "u"


def test_a_flush_that_fails(script, monkeypatch):
    monkeypatch.setattr(script.time, "sleep", lambda seconds: None)
    listener = script.Listener(Told(), 0, 1)
    answer = script.Requests(Requests(401), listener, {}, True).post("http://x/flush_cache")
    assert listener.flush == 401
    with pytest.raises(OSError):
        answer.raise_for_status()
    tolerated = script.Requests(Requests(400), listener, {}, False).post("http://x/flush_cache")
    tolerated.raise_for_status()
    assert tolerated.status_code == listener.flush == 400


def test_another_post_is_left_alone(script):
    listener, requests = script.Listener(Told(), 0, 1), Requests(200)
    script.Requests(requests, listener, {"A": "b"}, True).post("http://x/generate")
    assert listener.flush is None and requests.asked == [("http://x/generate", None)]


def test_a_module_without_a_main_program(script, tmp_path):
    with pytest.raises(script.Failed, match="no main program"):
        script.main_program(client(tmp_path, CLIENT))


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (["sglang/__init__.py", "sglang/bench_serving.py"], "sglang.bench_serving"),
        (["sglang/__init__.py", "sglang/benchmark/__init__.py", "sglang/bench_serving.py"], "sglang.bench_serving"),
        (
            [
                "sglang/__init__.py",
                "sglang/benchmark/__init__.py",
                "sglang/benchmark/serving.py",
                "sglang/bench_serving.py",
            ],
            "sglang.benchmark.serving",
        ),
    ],
)
def test_where_the_client_is(script, tmp_path, monkeypatch, files, name):
    installed(tmp_path, monkeypatch, dict.fromkeys(files, ""))
    assert script.import_client().__name__ == name


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has neither sglang.benchmark.serving nor sglang.bench_serving"),
        ({"sglang/__init__.py": ""}, "has neither"),
        (
            {"sglang/__init__.py": "", "sglang/bench_serving.py": "import no_such_thing"},
            "No module named 'no_such_thing'",
        ),
    ],
)
def test_no_client(script, tmp_path, monkeypatch, files, words):
    installed(tmp_path, monkeypatch, files)
    with pytest.raises(script.Failed) as error:
        script.import_client()
    assert error.value.reason == "client_missing" and words in str(error.value)


def installed(folder, monkeypatch, files):
    """Have these files, and nothing else, be the package sglang."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.parametrize(
    ("wanted", "has", "found"), [("auto", "x", True), ("auto", None, False), ("never", "x", False)]
)
def test_chat_template(script, wanted, has, found):
    module = types.SimpleNamespace(get_tokenizer=lambda path: types.SimpleNamespace(chat_template=has))
    assert script.chat_template(module, {"chat_template": wanted, "tokenizer": "/t"}) is found
    assert script.chat_template(module, {"chat_template": "always", "tokenizer": "/t"}) is True
    assert script.chat_template(types.SimpleNamespace(), {"chat_template": "auto", "tokenizer": "/t"}) is False


def test_open_files(script, monkeypatch):
    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: given.append(limits))
    script.open_files(10)
    script.open_files(1000)
    assert given == [(1128, 4096)]

    def refuse(which, limits):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(script.Failed, match="may have 4096 open files, and 8000 requests at a time need 8128") as error:
        script.open_files(8000)
    assert error.value.reason == "open_files"


def test_a_file_in_memory(script):
    path = script.memory_file("x", b"first\n")
    with open(path, "a") as stream:
        stream.write('{"completed": 2}\n')
    assert os.path.isfile(path) and script.result_of(path) == {"completed": 2}
    os.close(int(path.rpartition("/")[2]))


def test_events_are_whole_lines(script):
    ours, theirs = os.pipe()
    events = script.Events(theirs, "mark:")
    events.send("progress", done=3)
    os.close(theirs)
    with open(ours) as stream:
        lines = [line for line in stream.read().splitlines() if line]
    assert [json.loads(line[len("mark:") :]) for line in lines] == [{"done": 3, "event": "progress"}]
