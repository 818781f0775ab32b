# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs SGLang's benchmark client inside SGLang's own interpreter, and listens to its answers.

It is text, because it is not of this process: it must run on that interpreter's Python, in a container too,
with nothing but the standard library and SGLang.

The client itself is not changed: its own main program runs, for each repeat once more, so that it is imported
once.  Around it three things of its module are replaced: the function that makes one request, so that it is
known whose answer is read and how many are done; the JSON readers, so that the meta_info of each answer is seen,
of which the client's result has nothing; and `requests`, so that it is known whether the cache was flushed.
Prompts and the client's result, which has keys in it, are files in memory alone.
"""

from __future__ import annotations

# Why it may say that it failed.
SCRIPT_REASONS = ("client_failed", "client_missing", "open_files")

SCRIPT = r"""
import ast
import contextvars
import faulthandler
import importlib
import json
import math
import os
import resource
import sys
import threading
import time
import traceback

# The newer place first: there the old one is a shim.
MODULES = ("sglang.benchmark.serving", "sglang.bench_serving")
CURRENT = contextvars.ContextVar("request")
PROGRESS_INTERVAL = 0.5
FLUSH_ATTEMPTS = 20
MOST_ERRORS = 3
# Beside one connection for each request.
OTHER_FILES = 128


class Failed(Exception):
    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


class Events:
    def __init__(self, descriptor, marker):
        self._descriptor = descriptor
        self._marker = marker
        self._lock = threading.Lock()

    def send(self, event, **values):
        text = json.dumps(dict(values, event=event), default=str)
        line = ("\n%s%s\n" % (self._marker, text)).encode()
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line):]


# -- the end


def watch(alive, patience):
    # Nobody may wait any more for what is measured here, and a container is not reached by signals.
    seen, since = None, time.monotonic()
    while True:
        try:
            touched = os.stat(alive).st_mtime_ns
        except OSError:
            os._exit(3)
        if touched != seen:
            seen, since = touched, time.monotonic()
        elif time.monotonic() - since > patience:
            os._exit(4)
        time.sleep(0.25)


# -- files in memory


def memory_file(name, data=b""):
    descriptor = os.memfd_create(name, 0)
    while data:
        data = data[os.write(descriptor, data):]
    return "/proc/self/fd/%d" % descriptor


# -- listening


class Listener:
    def __init__(self, events, warmups, expected):
        self._events = events
        self._warmups = warmups
        self._expected = expected
        self._started = 0
        self._told = 0.0
        self.records = []
        self.flush = None

    def wrap(self, function):
        async def listening(*args, **kwargs):
            self._started += 1
            warmup = self._started <= self._warmups
            record = {}
            token = CURRENT.set(record)
            try:
                output = await function(*args, **kwargs)
            finally:
                CURRENT.reset(token)
            if not warmup:
                self._finished(record, output)
            return output

        return listening

    def _finished(self, record, output):
        record["success"] = bool(getattr(output, "success", False))
        record["error"] = "" if record["success"] else str(getattr(output, "error", ""))
        self.records.append(record)
        now = time.monotonic()
        if now - self._told >= PROGRESS_INTERVAL:
            self._told = now
            self._events.send("progress", done=len(self.records), of=self._expected)

    def totals(self):
        good = [record for record in self.records if record["success"]]
        # The numbers of speculation come with the last part of an answer.
        metas = [record.get("spec") or record.get("meta") or {} for record in good]
        verified = [meta for meta in metas if number(meta.get("spec_verify_ct"))]
        histogram = []
        for meta in verified:
            row = meta.get("spec_correct_drafts_histogram") or meta.get("spec_accept_histogram") or []
            if not isinstance(row, list) or not all(isinstance(count, int) for count in row):
                continue
            histogram += [0] * (len(row) - len(histogram))
            for place, count in enumerate(row):
                histogram[place] += count
        errors = []
        for record in self.records:
            lines = [line.strip() for line in record["error"].splitlines() if line.strip()]
            if lines and lines[-1][:500] not in errors:
                errors.append(lines[-1][:500])
        return {
            "listened": self._started > 0,
            "requests": len(self.records),
            "succeeded": len(good),
            "heard": sum(1 for meta in metas if number(meta.get("completion_tokens"))),
            "verified": len(verified),
            "verify_steps": sum(meta["spec_verify_ct"] for meta in verified),
            "verified_tokens": sum(number(meta.get("completion_tokens")) for meta in verified),
            "histogram": histogram,
            "errors": errors[:MOST_ERRORS],
            "flush": self.flush,
        }


def sentence_of(error):
    # The client's own errors have whole tracebacks in them: what is before, and the last line.
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    first = lines[0].partition("Traceback (most recent call last)")[0].strip()
    return " ".join([first] + [line.strip() for line in lines[-1:] if len(lines) > 1])[:2000]


def number(value):
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class Reader:
    # A module with loads(), as it is but for that.

    def __init__(self, module):
        self._module = module
        self._loads = module.loads

    def __getattr__(self, name):
        return getattr(self._module, name)

    def loads(self, *args, **kwargs):
        value = self._loads(*args, **kwargs)
        record = CURRENT.get(None)
        if record is not None and type(value) is dict:
            meta = value.get("meta_info")
            if type(meta) is dict:
                record["meta"] = meta
                if "spec_verify_ct" in meta:
                    record["spec"] = meta
        return value


class Tolerated:
    # An answer that is no error, whatever its status is.

    def __init__(self, answer):
        self._answer = answer

    def __getattr__(self, name):
        return getattr(self._answer, name)

    def raise_for_status(self):
        pass


class Requests:
    # The module requests, whose flush of the cache is made sure of.

    def __init__(self, module, listener, headers, must):
        self._module = module
        self._listener = listener
        self._headers = headers
        self._must = must

    def __getattr__(self, name):
        return getattr(self._module, name)

    def post(self, url, *args, **kwargs):
        if not str(url).endswith("/flush_cache"):
            return self._module.post(url, *args, **kwargs)
        if self._headers:
            kwargs["headers"] = dict(kwargs.get("headers") or {}, **self._headers)
        # The server refuses while it still has a request, which it may for a moment.
        for attempt in range(FLUSH_ATTEMPTS if self._must else 1):
            answer = self._module.post(url, *args, **kwargs)
            self._listener.flush = answer.status_code
            if answer.status_code != 400:
                break
            time.sleep(0.25)
        # Beside the requests of others it may fail each time.  Else the client goes on, or not, as it does by itself:
        # in the end such a repeat does not count.
        return answer if self._must else Tolerated(answer)


# -- the client


def import_client():
    for name in MODULES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not (name + ".").startswith("%s." % error.name):
                raise Failed("client_missing", "%s cannot be imported: %s" % (name, error))
    raise Failed("client_missing", "this interpreter has neither %s nor %s" % MODULES)


def main_program(module):
    # What stands below `if __name__ == "__main__"`: in the older releases that is no function.
    with open(module.__file__, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    for node in reversed(tree.body):
        if isinstance(node, ast.If) and any(
            isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
        ):
            return compile(ast.Module(body=node.body, type_ignores=[]), module.__file__, "exec")
    raise Failed("client_missing", "%s has no main program" % module.__file__)


def version_of():
    import sglang

    return str(getattr(sglang, "__version__", ""))


def accept_any_certificate():
    # The server is on this host, is known to be the one that listens there, and bears another name.
    import ssl

    original = ssl.create_default_context

    def unchecked(*args, **kwargs):
        context = original(*args, **kwargs)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    ssl.create_default_context = unchecked
    try:
        import requests
    except ImportError:
        return
    begin = requests.Session.__init__

    def session(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.verify = False

    requests.Session.__init__ = session


def open_files(concurrency):
    need = concurrency + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        try:
            most = need if hard == resource.RLIM_INFINITY else max(need, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (need, most))
        except (ValueError, OSError):
            message = "it may have %d open files, and %d requests at a time need %d" % (hard, concurrency, need)
            raise Failed("open_files", message)


def chat_template(module, task):
    if task["chat_template"] != "auto":
        return task["chat_template"] == "always"
    try:
        return bool(getattr(module.get_tokenizer(task["tokenizer"]), "chat_template", None))
    except Exception as error:
        print("no chat template: %r" % error)
        return False


def plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def result_of(path):
    with open(path, encoding="utf-8") as stream:
        lines = [line for line in stream.read().splitlines() if line.strip()]
    if not lines:
        return None
    found = json.loads(lines[-1])
    # Numbers only: what else is in it are the server's arguments, keys included.
    return {
        name: plain(value)
        for name, value in found.items()
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    }


def one_repeat(module, program, task, words, events):
    listener = Listener(events, task["warmups"], task["requests"])
    functions = getattr(module, "ASYNC_REQUEST_FUNCS", None)
    original = functions.get(task["backend"]) if isinstance(functions, dict) else None
    kept = {name: getattr(module, name) for name in ("json", "orjson", "requests") if hasattr(module, name)}
    output = memory_file("result")
    try:
        if original is not None:
            functions[task["backend"]] = listener.wrap(original)
        for name in ("json", "orjson"):
            if name in kept:
                setattr(module, name, Reader(kept[name]))
        if "requests" in kept:
            module.requests = Requests(kept["requests"], listener, task["flush_headers"], task["must_flush"])
        sys.argv = [module.__file__] + words + ["--output-file", output]
        try:
            exec(program, vars(module))
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise Failed("client_failed", "the client ended with status %s" % leaving.code)
        return {"result": result_of(output), "requests": listener.totals()}
    except Failed:
        raise
    except Exception as error:
        traceback.print_exc()
        raise Failed("client_failed", sentence_of(error))
    finally:
        for name, value in kept.items():
            setattr(module, name, value)
        if original is not None:
            functions[task["backend"]] = original
        os.close(int(output.rpartition("/")[2]))


def measure(task, events):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "*"
    # Only now, and not in what the process was started with: that shows in /proc.
    os.environ.pop("API_KEY", None)
    os.environ.pop("OPENAI_API_KEY", None)
    if task["api_key"]:
        os.environ["OPENAI_API_KEY"] = task["api_key"]
    open_files(task["concurrency"])
    if task["tls"]:
        accept_any_certificate()
    module = import_client()
    program = main_program(module)
    words = list(task["words"])
    if task["prompts"] is not None:
        text = "".join(json.dumps(row) + "\n" for row in task["prompts"])
        words += ["--dataset-path", memory_file("prompts", text.encode())]
    template = task["prompts"] is not None and chat_template(module, task)
    if template:
        words.append("--apply-chat-template")
    events.send("client", module=module.__name__, version=version_of(), chat_template=template)
    for number in range(task["first"], task["repeats"] + 1):
        events.send("repeat_begins", number=number)
        events.send("repeat", number=number, **one_repeat(module, program, task, words, events))
    events.send("done")


def main(task):
    # Standard output is for the events alone: what is printed from here on goes where errors go.
    out = os.dup(1)
    os.dup2(2, 1)
    events = Events(out, task["marker"])
    # In C, so that it also ends what hangs there.
    faulthandler.dump_traceback_later(task["limit"], exit=True)
    threading.Thread(target=watch, args=(task["alive"], task["patience"]), daemon=True).start()
    if task["working_directory"]:
        try:
            os.chdir(task["working_directory"])
        except OSError:
            pass
    try:
        measure(task, events)
    except Failed as error:
        events.send("failed", reason=error.reason, message=str(error))
    except BaseException as error:
        traceback.print_exc()
        events.send("failed", reason="client_failed", message=sentence_of(error))
    sys.stdout.flush()
    sys.stderr.flush()
    # SGLang may have started threads that would keep the interpreter alive.
    os._exit(0)
"""
