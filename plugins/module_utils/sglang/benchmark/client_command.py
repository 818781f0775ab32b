# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang's benchmark client is told, and how the Python that runs it is started.

The options are those that the client has had since 0.5.7; it has no secret among them.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_process import (
    ClientError,
    Launch,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.prompts import as_rows
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.mounts import Mount
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import (
    client_environment,
    probe_words,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import probe_host
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import (
    ServerProcessError,
    account_of,
    base_environment,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

# The client's name for SGLang's own endpoint, which answers with meta_info.
BACKEND = "sglang"
CUSTOM = "custom"
RANDOM_IDS = "random-ids"
# Beyond the limit of a point: the client ends itself where nobody could (seconds).
_LATER = 30.0


def base_url(host: str, port: int, tls: bool) -> str:
    """The address of a server on its own host."""
    address = probe_host(host)
    return "%s://%s:%d" % ("https" if tls else "http", "[%s]" % address if ":" in address else address, port)


def client_words(
    url: str, model: str, tokenizer: str, concurrency: int, num_prompts: int, params: Mapping[str, Any]
) -> List[str]:
    """The client's own options for one point.

    params: output_len, warmup_requests (0 for one to each stream), dataset, input_len and seed of the module.
    """
    words = ["--backend", BACKEND, "--base-url", url, "--model", model, "--tokenizer", tokenizer]
    if params["dataset"] == RANDOM_IDS:
        words += ["--dataset-name", RANDOM_IDS]
        words += ["--random-input-len", str(params["input_len"]), "--random-output-len", str(params["output_len"])]
        # Of the client, 1 means that all are of this very length.
        words += ["--random-range-ratio", "1.0"]
    else:
        words += ["--dataset-name", CUSTOM, "--sharegpt-output-len", str(params["output_len"])]
    words += ["--num-prompts", str(num_prompts), "--max-concurrency", str(concurrency)]
    words += ["--warmup-requests", str(warmups(concurrency, params)), "--seed", str(params["seed"])]
    return words + ["--flush-cache", "--disable-tqdm"]


def warmups(concurrency: int, params: Mapping[str, Any]) -> int:
    """How many requests come before those that count."""
    return int(params["warmup_requests"]) or concurrency


def client_task(
    words: Sequence[str],
    concurrency: int,
    texts: Optional[Sequence[str]],
    num_prompts: int,
    release: Release,
    params: Mapping[str, Any],
    api_key: Optional[str],
    tokenizer: str,
    tls: bool,
) -> Dict[str, Any]:
    """The task of the client script; texts are None for random tokens."""
    admin = release.secret_args.get("admin-api-key")
    return {
        "backend": BACKEND,
        "words": list(words),
        "prompts": as_rows(texts) if texts is not None else None,
        "requests": num_prompts,
        "concurrency": concurrency,
        "warmups": warmups(concurrency, params),
        "first": 1,
        "repeats": params["repeats"],
        "chat_template": params["chat_template"],
        "tokenizer": tokenizer,
        "api_key": api_key or "",
        # Who may flush the cache is another question where there is a key for it.
        "flush_headers": {"Authorization": "Bearer " + admin} if admin else {},
        "must_flush": not params["allow_other_load"],
        "tls": tls,
        "limit": params["timeout"] + _LATER,
        "working_directory": release.working_directory,
    }


def client_launch(release: Release, python: str, session: Mapping[str, str], folder: str) -> Launch:
    """How the Python of a release is started on its standard input, where the server would run.

    python: the interpreter, "" for that of the release; session: the environment of whoever runs this; folder:
    what a container must see beyond what the server sees.  Raises ClientError.
    """
    interpreter = python or release.command[0]
    if not os.path.basename(interpreter).startswith("python"):
        raise ClientError(
            "client_missing",
            "The release starts %s, which is no Python: give python, the interpreter that has SGLang." % interpreter,
        )
    if release.container:
        return _in_container(release, interpreter, session, folder)
    try:
        account = account_of(release.user)
    except ServerProcessError as error:
        raise ClientError("client_failed", str(error)) from None
    environment = dict(base_environment(session, account), **release.environment)
    return Launch([interpreter, "-"], environment, account)


def _in_container(release: Release, interpreter: str, session: Mapping[str, str], folder: str) -> Launch:
    try:
        settings = ContainerSettings.from_dict(release.container)
        words = probe_words(
            settings, (Mount(folder, folder),), release.environment, interpreter, release.gpus, release.user
        )
    except ContainerError as error:
        raise ClientError("client_failed", "%s." % error) from None
    # What runs the container has needs of its own, such as the address of a daemon.
    return Launch(words, dict(session, **client_environment(release.environment)))
