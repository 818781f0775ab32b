# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import pwd

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_command import (
    base_url,
    client_launch,
    client_task,
    client_words,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_process import ClientError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

KEY, ADMIN = "kq-2f5d81aa", "kq-admin-77d1"
PARAMS = {
    "dataset": "custom",
    "input_len": 512,
    "output_len": 256,
    "warmup_requests": 0,
    "seed": 42,
    "repeats": 3,
    "chat_template": "auto",
    "timeout": 600.0,
    "allow_other_load": False,
}
RELEASE = Release(
    id="r1",
    created="2026-01-02T03:04:05Z",
    instance="main",
    manager="process",
    command=["/opt/sglang/bin/python3", "-m", "sglang.launch_server"],
    environment={"TOKENIZERS_PARALLELISM": "false", "LD_LIBRARY_PATH": "/opt/lib"},
    secret_args={"api-key": KEY},
    working_directory="/srv",
)


def pairs(words):
    """Options with their values; switches are None."""
    found = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            following = words[place + 1] if place + 1 < len(words) else "--"
            found[word] = None if following.startswith("--") else following
    return found


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:30000"),
        ("0.0.0.0", False, "http://127.0.0.1:30000"),
        ("::", True, "https://[::1]:30000"),
        ("gpu-a", True, "https://gpu-a:30000"),
    ],
)
def test_address(host, tls, url):
    assert base_url(host, 30000, tls) == url


def words(concurrency=8, num_prompts=32, **params):
    return client_words("http://127.0.0.1:30000", "/m", "/t", concurrency, num_prompts, {**PARAMS, **params})


def test_options_of_the_client():
    assert pairs(words()) == {
        "--backend": "sglang",
        "--base-url": "http://127.0.0.1:30000",
        "--model": "/m",
        "--tokenizer": "/t",
        "--dataset-name": "custom",
        "--sharegpt-output-len": "256",
        "--num-prompts": "32",
        "--max-concurrency": "8",
        "--warmup-requests": "8",
        "--seed": "42",
        "--flush-cache": None,
        "--disable-tqdm": None,
    }


def test_options_for_random_tokens():
    found = pairs(words(dataset="random-ids", warmup_requests=2))
    assert found["--dataset-name"] == "random-ids" and "--sharegpt-output-len" not in found
    assert (found["--random-input-len"], found["--random-output-len"], found["--random-range-ratio"]) == (
        "512",
        "256",
        "1.0",
    )
    assert found["--warmup-requests"] == "2"
    # With it, 0.5.7 sends numbers that JSON does not know.
    assert "--tokenize-prompt" not in found


def task(release=RELEASE, texts=("Tell me a story",), **params):
    return client_task(words(), 8, texts, 32, release, {**PARAMS, **params}, KEY, "/t", False)


def test_task_of_the_script():
    found = task()
    assert found["prompts"][0]["conversations"][0] == {"content": "Tell me a story"}
    assert (found["warmups"], found["requests"], found["first"], found["repeats"]) == (8, 32, 1, 3)
    assert found["limit"] > PARAMS["timeout"] and found["working_directory"] == "/srv"
    assert (found["api_key"], found["flush_headers"], found["must_flush"]) == (KEY, {}, True)
    assert KEY not in json.dumps(found["words"])
    assert json.loads(json.dumps(found)) == found
    assert task(texts=None)["prompts"] is None and task(allow_other_load=True)["must_flush"] is False


def test_who_may_flush():
    release = Release(**{**vars(RELEASE), "secret_args": {"api-key": KEY, "admin-api-key": ADMIN}})
    assert task(release)["flush_headers"] == {"Authorization": "Bearer " + ADMIN}


def test_launch():
    launch = client_launch(RELEASE, "", {"PATH": "/bin", "http_proxy": "http://p", "SSH_TTY": "x"}, "/run/x")
    assert launch.words == ["/opt/sglang/bin/python3", "-"] and launch.account is None
    assert launch.environment == {"PATH": "/bin", **RELEASE.environment}
    assert client_launch(RELEASE, "/usr/bin/python3.11", {}, "/run/x").words == ["/usr/bin/python3.11", "-"]


@pytest.mark.parametrize("command", [["/usr/bin/sglang", "serve"], ["/opt/start.sh"]])
def test_a_release_that_starts_no_python(command):
    release = Release(**{**vars(RELEASE), "command": command})
    with pytest.raises(ClientError, match="give python") as error:
        client_launch(release, "", {}, "/run/x")
    assert error.value.reason == "client_missing"
    assert client_launch(release, "/opt/python3", {}, "/run/x").words[0] == "/opt/python3"


def test_as_the_user_of_the_server(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    release = Release(**{**vars(RELEASE), "user": "nobody"})
    launch = client_launch(release, "", {"PATH": "/bin", "HOME": "/root"}, "/run/x")
    assert launch.account == pwd.getpwnam("nobody") and launch.environment["HOME"] == launch.account.pw_dir
    with pytest.raises(ClientError, match="no user 'nobody-at-all'"):
        client_launch(Release(**{**vars(RELEASE), "user": "nobody-at-all"}), "", {}, "/run/x")


def test_in_the_image_of_the_server():
    container = {"engine": "docker", "engine_path": "/usr/bin/docker", "image": "lmsysorg/sglang:v0.5.17"}
    release = Release(**{**vars(RELEASE), "container": container, "environment": {"HF_TOKEN": "kq-hub-1", "A": "b"}})
    launch = client_launch(release, "", {"PATH": "/bin", "DOCKER_HOST": "unix:///x"}, "/run/sglang/main.benchmark")
    line = " ".join(launch.words)
    assert launch.words[:2] == ["/usr/bin/docker", "run"] and line.endswith("lmsysorg/sglang:v0.5.17 -")
    assert "--entrypoint /opt/sglang/bin/python3" in line and "--network host" in line and "--interactive" in line
    # Its files are seen inside, so that it notices when it is to end.
    folder = "/run/sglang/main.benchmark"
    assert "type=bind,source=%s,target=%s,readonly" % (folder, folder) in line
    assert "kq-hub-1" not in line and launch.environment["HF_TOKEN"] == "kq-hub-1"
    assert launch.environment["DOCKER_HOST"] == "unix:///x"


def test_a_container_that_cannot_be():
    release = Release(**{**vars(RELEASE), "container": {"engine": "docker"}})
    with pytest.raises(ClientError, match="container"):
        client_launch(release, "", {}, "/run/x")
