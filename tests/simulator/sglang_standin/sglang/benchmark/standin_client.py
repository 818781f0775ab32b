# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark client: the command line, the requests, the printed table and the result line of the real one.

It needs nothing but the standard library, and really sends its requests. ``STANDIN_CLIENT`` says how it fails (see
the README). What it uses are names of the module that runs this file, as in the real one: ``json``, ``requests``,
``ASYNC_REQUEST_FUNCS``, ``get_tokenizer``, ``run_benchmark``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import ssl
import statistics
import sys
import time
import traceback
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional, Sequence
from urllib.parse import urlsplit

from sglang.version import since

FAULT = os.environ.get("STANDIN_CLIENT", "")
# The real one waits a second between the flush and the first request.
PAUSE = float(os.environ.get("STANDIN_CLIENT_PAUSE") or 0.02)


class Response:
    """As much of a response of ``requests`` as the client uses."""

    def __init__(self, status_code: int, content: bytes) -> None:
        self.status_code = status_code
        self.content = content

    def json(self) -> Any:
        return json.loads(self.content)

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            raise RuntimeError("{} Client Error".format(self.status_code))


class requests:  # noqa: N801
    """As much of ``requests`` as the client uses."""

    @staticmethod
    def get(url: str, headers: Optional[Dict[str, str]] = None, timeout: float = 30) -> Response:
        return _ask(urllib.request.Request(url, headers=headers or {}), timeout)

    @staticmethod
    def post(url: str, headers: Optional[Dict[str, str]] = None, **_options: Any) -> Response:
        return _ask(urllib.request.Request(url, b"", headers=headers or {}), 30)


def _ask(request: urllib.request.Request, timeout: float) -> Response:
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=ssl.create_default_context()) as answer:
            return Response(answer.status, answer.read())
    except urllib.error.HTTPError as error:
        return Response(error.code, error.read())


class RequestFuncInput:
    def __init__(self, prompt: Any, api_url: str, prompt_len: int, output_len: int) -> None:
        self.prompt = prompt
        self.api_url = api_url
        self.prompt_len = prompt_len
        self.output_len = output_len


class RequestFuncOutput:
    def __init__(self) -> None:
        self.generated_text = ""
        self.success = False
        self.latency = 0.0
        self.ttft = 0.0
        self.prompt_len = 0
        self.error = ""
        self.output_len = 0


def get_auth_headers() -> Dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY")
    return {"Authorization": "Bearer " + key} if key else {}


class Tokenizer:
    """A word is a token."""

    vocab_size = 1000

    def __init__(self, path: str) -> None:
        if not os.path.isdir(path):
            raise OSError("{} is no folder: no network to get a tokenizer from".format(path))
        self.chat_template: Optional[str] = None
        file = os.path.join(path, "tokenizer_config.json")
        if os.path.isfile(file):
            with open(file) as stream:
                self.chat_template = json.load(stream).get("chat_template")

    def encode(self, text: str) -> List[str]:
        return text.split()

    def apply_chat_template(self, messages: Sequence[Dict[str, str]]) -> str:
        if not self.chat_template:
            raise ValueError("Cannot use chat template functions because tokenizer.chat_template is not set")
        return "".join("{role}: {content}\n".format(**message) for message in messages) + "assistant:"


def get_tokenizer(path: str) -> Tokenizer:
    return Tokenizer(path)


# ---- one request


async def async_request_sglang_generate(request_func_input: Any, pbar: Any = None) -> RequestFuncOutput:
    output = RequestFuncOutput()
    output.prompt_len = request_func_input.prompt_len
    prompt = request_func_input.prompt
    payload = {
        ("text" if isinstance(prompt, str) else "input_ids"): prompt,
        "sampling_params": {
            "temperature": 0.0,
            "max_new_tokens": request_func_input.output_len,
            "ignore_eos": not args.disable_ignore_eos,
        },
        "stream": True,
    }
    began = time.perf_counter()
    try:
        async for chunk in stream_of(request_func_input.api_url, json.dumps(payload).encode(), get_auth_headers()):
            data = json.loads(chunk)
            if data.get("text"):
                output.ttft = output.ttft or time.perf_counter() - began
                output.generated_text = data["text"]
                output.output_len = data["meta_info"]["completion_tokens"]
        output.latency = time.perf_counter() - began
        output.success = True
    except Exception:
        output.error = traceback.format_exc()
        print("output.error={!r}".format(output.error))
    return output


async def stream_of(url: str, body: bytes, headers: Dict[str, str]) -> Any:
    """The events of a streamed answer. :raises RuntimeError: for another status than 200."""
    address = urlsplit(url)
    context = ssl.create_default_context() if address.scheme == "https" else None
    reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=context)
    try:
        lines = ["POST {} HTTP/1.1".format(address.path), "Host: x", "Content-Type: application/json"]
        lines += ["Content-Length: {}".format(len(body)), "Connection: close"]
        lines += ["{}: {}".format(name, value) for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        if status != 200:
            raise RuntimeError("{}: {}".format(status, (await reader.read(500)).decode("utf-8", "replace")))
        while True:
            size = int(await reader.readline() or b"0", 16)
            if not size:
                return
            chunk = (await reader.readexactly(size + 2)).strip()
            if chunk != b"data: [DONE]":
                yield chunk[len(b"data: ") :].decode()
    finally:
        writer.close()


ASYNC_REQUEST_FUNCS = {"sglang": async_request_sglang_generate, "sglang-native": async_request_sglang_generate}


# ---- the prompts


def get_dataset(arguments: Any, tokenizer: Tokenizer) -> List[RequestFuncInput]:
    url = arguments.base_url + "/generate"
    if arguments.dataset_name == "random-ids":
        size, output_len = arguments.random_input_len, arguments.random_output_len
        return [
            RequestFuncInput([random.randrange(tokenizer.vocab_size) for _word in range(size)], url, size, output_len)
            for _request in range(arguments.num_prompts)
        ]
    if not os.path.isfile(arguments.dataset_path):
        raise FileNotFoundError("Dataset not found at {}".format(arguments.dataset_path))
    with open(arguments.dataset_path, encoding="utf-8") as stream:
        rows = [json.loads(line)["conversations"] for line in stream if line.strip()]
    random.shuffle(rows)
    found: List[RequestFuncInput] = []
    for question, answer in rows:
        if len(found) == arguments.num_prompts:
            break
        prompt = question["content"]
        if arguments.apply_chat_template:
            prompt = tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
        output_len = arguments.sharegpt_output_len or len(tokenizer.encode(answer["content"]))
        prompt_len = len(tokenizer.encode(prompt))
        if prompt_len >= 2 and output_len >= 2:
            found.append(RequestFuncInput(prompt, url, prompt_len, output_len))
    return found[:-1] if FAULT == "drop" else found


# ---- the benchmark


async def benchmark(arguments: Any, input_requests: List[RequestFuncInput]) -> Dict[str, Any]:
    request_func = ASYNC_REQUEST_FUNCS[arguments.backend]
    limit = asyncio.Semaphore(arguments.max_concurrency)
    first = input_requests[0]
    test_input = RequestFuncInput(first.prompt, first.api_url, first.prompt_len, min(first.output_len, 32))
    print("Starting warmup with {} sequences...".format(arguments.warmup_requests))
    warm = [request_func(request_func_input=test_input) for _number in range(arguments.warmup_requests)]
    warmup_outputs = await asyncio.gather(*warm)
    if warm and not any(output.success for output in warmup_outputs):
        raise ValueError(
            "Warmup failed - Please make sure benchmark arguments are correctly specified. Error: {}".format(
                warmup_outputs[0].error
            )
        )
    if arguments.flush_cache:
        flushed = requests.post(arguments.base_url + "/flush_cache", headers=get_auth_headers())
        if since(17):
            flushed.raise_for_status()
    time.sleep(PAUSE)
    if FAULT == "hang":
        time.sleep(3600)
    if FAULT == "die":
        os._exit(9)

    async def limited(request_func_input: RequestFuncInput) -> RequestFuncOutput:
        async with limit:
            return await request_func(request_func_input=request_func_input, pbar=None)

    began = time.perf_counter()
    outputs = await asyncio.gather(*[limited(item) for item in input_requests])
    duration = time.perf_counter() - began
    info = requests.get(
        arguments.base_url + ("/server_info" if since(8) else "/get_server_info"), headers=get_auth_headers()
    )
    server_info = info.json() if info.status_code == 200 else None
    result = figures(arguments, outputs, duration, server_info)
    print("{s:{c}^{n}}".format(s=" Serving Benchmark Result ", n=50, c="="))
    for name in ("completed", "duration", "output_throughput", "concurrency", "accept_length"):
        print("{:<40} {}".format(name, result[name]))
    if FAULT != "no_result":
        with open(arguments.output_file, "a") as stream:
            stream.write(json.dumps(result) + "\n")
    return result


def figures(arguments: Any, outputs: Sequence[RequestFuncOutput], duration: float, server_info: Any) -> Dict[str, Any]:
    """The result line, server_info with its keys included."""
    good = [output for output in outputs if output.success]
    if not good:
        print("All requests failed. This is likely due to a misconfiguration on the benchmark arguments.")
    tokens = sum(output.output_len for output in good)
    states = (server_info or {}).get("internal_states") or [{}]
    result: Dict[str, Any] = {
        "tag": None,
        "backend": arguments.backend,
        "dataset_name": arguments.dataset_name,
        "request_rate": float("inf"),
        "max_concurrency": arguments.max_concurrency,
        "sharegpt_output_len": arguments.sharegpt_output_len,
        "random_input_len": arguments.random_input_len,
        "random_output_len": arguments.random_output_len,
        "random_range_ratio": arguments.random_range_ratio,
        "server_info": server_info,
        "duration": duration,
        "completed": len(good),
        "total_input_tokens": sum(output.prompt_len for output in good),
        "total_output_tokens": tokens,
        "request_throughput": len(good) / duration,
        "output_throughput": tokens / duration,
        "concurrency": sum(output.latency for output in good) / duration,
        "accept_length": states[0].get("avg_spec_accept_length"),
    }
    each = {
        "e2e_latency": [output.latency for output in good],
        "ttft": [output.ttft for output in good],
        "tpot": [(output.latency - output.ttft) / (output.output_len - 1) for output in good if output.output_len > 1],
    }
    for name, values in each.items():
        values = sorted(1000 * value for value in values) or [0.0]
        result["mean_{}_ms".format(name)] = statistics.fmean(values)
        result["median_{}_ms".format(name)] = statistics.median(values)
        result["p99_{}_ms".format(name)] = values[min(len(values) - 1, int(len(values) * 0.99))]
    return result


def run_benchmark(arguments: Any) -> Dict[str, Any]:
    global args
    args = arguments
    print("benchmark_args={}".format(arguments))
    if FAULT == "print_key":
        print("Authorization: Bearer {}".format(os.environ.get("OPENAI_API_KEY")))
        raise RuntimeError("the key is {}".format(os.environ.get("OPENAI_API_KEY")))
    if FAULT == "exit":
        print("Server at {} is not ready. Exiting.".format(arguments.base_url))
        sys.exit(1)
    random.seed(arguments.seed)
    tokenizer = get_tokenizer(arguments.tokenizer or arguments.model)
    return asyncio.run(benchmark(arguments, get_dataset(arguments, tokenizer)))


# ---- the command line

DATASETS = ["sharegpt", "custom", "random", "random-ids", "generated-shared-prefix", "mmmu", "image", "mooncake"]


def build_parser() -> argparse.ArgumentParser:
    """The options that our modules and operators use; the real one has some sixty."""
    parser = argparse.ArgumentParser(description="Benchmark the online serving throughput.")
    parser.add_argument("--backend", choices=list(ASYNC_REQUEST_FUNCS), default="sglang")
    for name in ("base-url", "model", "served-model-name", "tokenizer", "output-file", "tag", "extra-request-body"):
        parser.add_argument("--" + name, type=str)
    parser.add_argument("--host", type=str, default="0.0.0.0")
    parser.add_argument("--port", type=int)
    parser.add_argument("--dataset-name", default="sharegpt", choices=DATASETS)
    parser.add_argument("--dataset-path", type=str, default="")
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument("--sharegpt-output-len", type=int)
    parser.add_argument("--sharegpt-context-len", type=int)
    parser.add_argument("--random-input-len", type=int, default=1024)
    parser.add_argument("--random-output-len", type=int, default=1024)
    parser.add_argument("--random-range-ratio", type=float, default=0.0)
    parser.add_argument("--request-rate", type=float, default=float("inf"))
    parser.add_argument("--max-concurrency", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warmup-requests", type=int, default=1)
    switches = ["disable-tqdm", "disable-stream", "disable-ignore-eos", "apply-chat-template", "flush-cache"]
    for name in [*switches, "tokenize-prompt", "output-details", "return-logprob", "profile"]:
        parser.add_argument("--" + name, action="store_true")
    if since(12):
        parser.add_argument("--ready-check-timeout-sec", type=int, default=60)
        parser.add_argument("--header", type=str, nargs="+")
    return parser


def cli_main() -> None:
    run_benchmark(build_parser().parse_args())


if FAULT == "no_functions":
    # A client that is made in another way, so that nobody can listen.
    class _Fixed(dict):
        def __setitem__(self, name: str, value: Any) -> None:
            pass

    ASYNC_REQUEST_FUNCS = _Fixed(ASYNC_REQUEST_FUNCS)
