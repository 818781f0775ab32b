# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole servers: their start, their answers, their end."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import Callable, List

import fakegpu
import pytest
from harness import Host, Server, wait_for
from make_model import make_model

Launch = Callable[..., Server]


def test_from_refused_to_gone(host: Host, launch: Launch) -> None:
    server = launch("--tp", "2", eagle=True, standin={"load_seconds": 0.4, "warmup_seconds": 0.6})
    seen: List[int] = []

    def ready() -> bool:
        seen.append(server.status())
        if seen[-1] == 503:
            assert server.status("/v1/models") == 200  # so it says nothing about readiness
        return seen[-1] == 200

    wait_for(ready)
    assert sorted(set(seen), key=seen.index) == [0, 503, 200]
    children = server.children()
    assert {"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"} <= set(children)
    for gpu in (0, 1):
        ((pid, mib),) = host.listed(gpu)
        assert pid == children["sglang::scheduler_TP{}".format(gpu)]
        assert mib == int(0.88 * 143771)

    meta = server.generate(64)
    assert meta["spec_verify_ct"] == round(64 / 2.952)
    assert meta["spec_accept_length"] == pytest.approx(2.9, abs=0.1)
    info = server.request("/server_info")[1]
    assert info["version"] == "0.5.17"
    assert (info["speculative_algorithm"], info["speculative_num_steps"]) == ("EAGLE3", 3)
    assert info["max_running_requests"] == 48
    (state,) = info["internal_states"]
    assert state["effective_max_running_requests_per_dp"] == 48
    assert state["avg_spec_accept_length"] == pytest.approx(2.9, abs=0.1)
    for line in ("Load weight begin.", "Load weight end.", "Capture cuda graph begin", "fired up and ready to roll!"):
        assert line in server.log

    server.process.terminate()
    assert server.wait() == -9
    wait_for(lambda: host.used(0) == host.used(1) == 0)


def test_baseline(launch: Launch) -> None:
    server = launch("--enable-metrics", "--served-model-name", "tiny")
    server.wait_ready()
    assert set(server.children()) >= {"sglang::scheduler", "sglang::detokenizer"}
    assert "spec_verify_ct" not in server.generate()
    info = server.request("/server_info")[1]
    assert info["speculative_algorithm"] is None
    assert "avg_spec_accept_length" not in info["internal_states"][0]
    assert server.request("/v1/models")[1]["data"][0]["id"] == "tiny"
    assert server.request("/model_info")[1]["architectures"] == ["LlamaForCausalLM"]
    (load,) = server.request("/v1/loads")[1]["loads"]
    assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 0)
    metrics = server.request("/metrics")[1]
    assert 'sglang:num_running_reqs{engine_type="unified",model_name="tiny"' in metrics
    assert server.status("/ready") == 404  # 0.5.20 and later
    assert server.status("/no/such") == 404
    completion = server.request("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 5})[1]
    assert completion["usage"]["completion_tokens"] == 5


def test_late_release(launch: Launch) -> None:
    keys = ["--api-key", "user-key", "--admin-api-key", "admin-key"]
    server = launch(*keys, eagle=True, version="0.5.23")
    server.wait_ready()
    assert server.status("/ready") == 200
    assert server.request("/server_info") == (401, {"error": "Unauthorized"})
    info = server.request("/server_info", key="user-key")[1]
    assert (info["api_key"], info["admin_api_key"]) == ("user-key", "admin-key")
    assert "--api-key user-key" in info["launch_command"]
    assert server.request("/flush_cache", {}, key="user-key")[0] == 401
    assert server.request("/flush_cache", {}, key="admin-key")[0] == 200
    server.process.terminate()
    assert server.wait() == 0


def test_flush_resets_the_average(launch: Launch) -> None:
    server = launch(eagle=True, standin={"accept": 2.0})
    server.wait_ready()
    server.generate()
    assert server.request("/server_info")[1]["internal_states"][0]["avg_spec_accept_length"] == 2.0
    assert server.request("/flush_cache", {})[0] == 200
    assert "avg_spec_accept_length" not in server.request("/server_info")[1]["internal_states"][0]


def test_draft_that_does_not_fit_accepts_nothing(launch: Launch) -> None:
    server = launch(eagle=True, draft={"accept": 1.0})
    server.wait_ready()
    meta = server.generate(64)
    assert (meta["spec_accept_length"], meta["spec_verify_ct"]) == (1.0, 64)


def test_stream(launch: Launch) -> None:
    server = launch(eagle=True)
    server.wait_ready()
    body = {"text": "x", "sampling_params": {"max_new_tokens": 12}, "stream": True}
    text = server.request("/generate", body)[1]
    assert text.count("data: {") == 4
    assert text.endswith("data: [DONE]\n\n")


def test_speculation_loses_under_load(host: Host) -> None:
    code = (
        "import types\nfrom sglang.srt.behaviour import Behaviour\nfrom sglang.srt.spec import Speculation\n"
        "def speed(n, **a):\n"
        "    args = types.SimpleNamespace(speculative_algorithm=None, speculative_num_steps=None,"
        " speculative_num_draft_tokens=None)\n"
        "    vars(args).update(a)\n"
        "    return Speculation(args, Behaviour()).tokens_per_second(n)\n"
        "e = dict(speculative_algorithm='EAGLE3', speculative_num_steps=3, speculative_num_draft_tokens=4)\n"
        "print(speed(1, **e) > speed(1), speed(64, **e) < speed(64))"
    )
    assert host.python(code).split() == ["True", "True"]


# ---- starting on GPUs that are not free


def test_refuses_a_busy_gpu(host: Host, launch: Launch) -> None:
    host.hold("--gpu", 0, "--mib", 30000)
    server = launch()
    assert server.wait() == -9
    assert "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static." in server.log
    assert "SIGQUIT received." in server.log
    wait_for(lambda: host.used(0) == 30000)


def test_refuses_unbalanced_gpus(host: Host, launch: Launch) -> None:
    host.hold("--gpu", 1, "--mib", 30000)
    server = launch("--tp", "2")
    assert server.wait() == -9
    assert "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied" in server.log


def test_two_servers_side_by_side(host: Host, launch: Launch) -> None:
    first = launch()
    second = launch(environment={"CUDA_VISIBLE_DEVICES": fakegpu.gpu_uuid(1)[:12]})
    first.wait_ready()
    second.wait_ready()
    assert [len(host.listed(gpu)) for gpu in (0, 1)] == [1, 1]


def test_base_gpu_id_counts_visible_devices(host: Host, launch: Launch) -> None:
    server = launch("--base-gpu-id", "1", environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert server.wait() == -9
    assert "invalid device ordinal" in server.log


# ---- failing while starting


@pytest.mark.parametrize(
    ("standin", "arguments", "code", "message"),
    [
        ({"die_at_load": True}, [], -9, "torch.OutOfMemoryError: CUDA out of memory."),
        ({"graph_capture_failure": True}, [], -9, "Capture cuda graph failed"),
        ({"die_in_warmup": True}, [], -9, "Initialization failed. warmup error"),
        ({}, ["--speculative-algorithm", "EAGLE3"], -9, "speculative_draft_model_path"),
        ({}, ["--no-such-option"], 2, "unrecognized arguments"),
        ({}, ["--served-model-name", "a:b"], 1, "cannot contain a colon"),
        ({"no_such_key": 1}, [], 1, "unknown keys"),
    ],
)
def test_start_that_fails(launch: Launch, standin: dict, arguments: List[str], code: int, message: str) -> None:
    server = launch(*arguments, standin=standin)
    assert server.wait() == code
    assert message in server.log


def test_draft_of_another_size(host: Host, launch: Launch) -> None:
    draft = make_model(host.folder / "small", draft=True, config={"hidden_size": 256})
    server = launch("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft))
    assert server.wait() == -9
    assert "must match the size of tensor b" in server.log


def test_port_in_use_comes_out_after_loading(host: Host, launch: Launch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = launch(port=other.getsockname()[1])
        assert server.wait() == 1
    assert "Load weight end." in server.log
    assert "address already in use" in server.log
    wait_for(lambda: host.used() == 0)


def test_never_ready(launch: Launch) -> None:
    server = launch(standin={"never_ready": True})
    wait_for(lambda: server.status() == 503)
    time.sleep(0.3)
    assert (server.status(), server.status("/v1/models")) == (503, 200)


def test_killed_in_the_import_window(host: Host, launch: Launch) -> None:
    server = launch(standin={"import_seconds": 0.8})
    names = wait_for(lambda: [name for name in server.children() if "spawn_main" in name])
    assert not any("sglang" in name for name in names)
    server.process.kill()
    server.wait()
    ((orphan, _mib),) = wait_for(host.listed)  # nobody's child, and it takes the memory all the same
    with open("/proc/{}/stat".format(orphan)) as stat:
        assert int(stat.read().rpartition(")")[2].split()[1]) != server.process.pid
    time.sleep(0.3)
    assert host.used() > 0


def test_children_die_with_the_parent(host: Host, launch: Launch) -> None:
    server = launch()
    server.wait_ready()
    server.process.kill()
    wait_for(lambda: host.used() == 0)


# ---- failing while serving


def test_hangs_after_some_requests(launch: Launch) -> None:
    server = launch(standin={"hang_after_requests": 2})
    server.wait_ready()
    for _request in range(2):
        server.generate(4)
    with pytest.raises(OSError):
        server.request("/generate", {"text": "x"}, timeout=0.4)
    assert server.status() == 200


def test_unhealthy(launch: Launch) -> None:
    server = launch(standin={"unhealthy": True})
    wait_for(lambda: "fired up" in server.log)
    assert server.status() == 503


def test_dead_scheduler_ends_the_server(launch: Launch) -> None:
    server = launch()
    server.wait_ready()
    os.kill(server.children()["sglang::scheduler"], signal.SIGKILL)
    assert server.wait() == -9


def test_serves_other_settings_than_asked(launch: Launch) -> None:
    server = launch(eagle=True, standin={"effective_override": {"speculative_algorithm": None}})
    server.wait_ready()
    assert server.request("/server_info")[1]["speculative_algorithm"] is None
    assert "spec_verify_ct" not in server.generate()


# ---- leaving


def test_drains_before_it_leaves(launch: Launch) -> None:
    server = launch(standin={"tokens_per_second": 100})
    server.wait_ready()
    answers = []
    request = threading.Thread(target=lambda: answers.append(server.generate(60)))
    request.start()
    time.sleep(0.2)
    server.process.terminate()
    wait_for(lambda: server.status() == 503)
    assert server.wait() == -9
    request.join()
    assert answers[0]["completion_tokens"] == 60


def test_ignores_term(launch: Launch) -> None:
    server = launch(standin={"ignore_term": True})
    server.wait_ready()
    server.process.terminate()
    time.sleep(0.3)
    assert server.status() == 200


def test_term_while_loading_ends_it_at_once(host: Host, launch: Launch) -> None:
    server = launch(standin={"load_seconds": 5})
    wait_for(lambda: "Load weight begin" in server.log)
    server.process.terminate()
    assert server.wait() == -15
    wait_for(lambda: host.used() == 0)
