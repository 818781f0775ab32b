# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations from bug reports that would die or silently differ: what the preflight says of them."""

from __future__ import annotations

import os
import socket
import time

import pytest
from make_model import make_model

from .server import EAGLE3, behave, succeeded
from .waiting import wait_until

NUMBERS = {name: EAGLE3[name] for name in EAGLE3 if name != "speculative_algorithm"}


def warnings(result):
    """What a preflight warns of, as one text."""
    return "\n".join(check["message"] for check in result["checks"] if check["status"] == "warning")


def extra(*words):
    return {"extra_args": [str(word) for word in words]}


@pytest.mark.sglang_case(5)
@pytest.mark.parametrize("algorithm", ["EAGLE3", "eagle3", "STANDALONE", "DFLASH"])
def test_an_algorithm_without_its_draft_model_is_refused(server, algorithm):
    numbers = NUMBERS if algorithm != "DFLASH" else {}
    result = server.preflight(speculative_algorithm=algorithm, speculative_draft_model_path="", **numbers)
    assert result["failed"] and "speculative_draft_model_path" in result["msg"]


@pytest.mark.sglang_case("no speculation and no word of it")
@pytest.mark.parametrize("version", ["0.5.7", "0.5.12", "0.5.17", "0.5.23"])
@pytest.mark.parametrize("options", [{"speculative_draft_model_path": "DRAFT"}, NUMBERS], ids=["draft", "numbers"])
def test_speculation_without_an_algorithm_is_refused(server, version, options):
    options = {name: server.draft if value == "DRAFT" else value for name, value in options.items()}
    result = server.preflight({"STANDIN_VERSION": version}, **options)
    assert result["failed"] and "speculative_algorithm" in result["msg"]


@pytest.mark.sglang_case(7)
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 20, 30]}}, ["aux", "layer"]),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 8]}}, ["aux", "layer"]),
        ({"hidden_size": 256}, ["hidden_size", "256"]),
        ({"draft_vocab_size": 9000}, ["draft_vocab_size", "9000"]),
    ],
    ids=["far-layers", "one-layer-too-far", "hidden-size", "vocabulary"],
)
def test_a_draft_of_another_target_is_refused(server, tmp_path, config, words):
    draft = str(make_model(tmp_path / "other", draft=True, config=config))
    result = server.preflight(speculative_draft_model_path=draft, **EAGLE3)
    assert result["failed"]
    for word in words:
        assert word in result["msg"]


@pytest.mark.sglang_case(10)
def test_a_draft_that_takes_over_the_targets_quantization_is_warned_of(server):
    result = succeeded(server.preflight(**EAGLE3, **extra("--quantization", "fp8")))
    assert "quantization" in warnings(result) and "unquant" in warnings(result)
    result = succeeded(
        server.preflight(
            **EAGLE3, speculative_options={"draft_model_quantization": "unquant"}, **extra("--quantization", "fp8")
        )
    )
    assert "unquant" not in warnings(result)
    assert result["sglang"]["effective"]["speculative_draft_model_quantization"] == "unquant"


@pytest.mark.sglang_case(12)
@pytest.mark.parametrize(
    "options",
    [
        dict(EAGLE3, speculative_num_steps=5, speculative_eagle_topk=4, speculative_num_draft_tokens=8),
        {"speculative_algorithm": "NGRAM", "speculative_draft_model_path": ""},
        dict(EAGLE3, tp_size=2, dp_size=2, **extra("--enable-dp-attention")),
    ],
    ids=["topk", "ngram", "dp-attention"],
)
def test_adaptive_speculation_that_sglang_would_turn_off_is_noticed(server, options):
    result = server.preflight(speculative_options={"adaptive": True}, **options)
    said = result["msg"] if result.get("failed") else warnings(result)
    assert "adaptive" in said
    if not result.get("failed"):
        found = result["sglang"]["adjusted"]["speculative_adaptive"]
        assert found == {"requested": True, "effective": False}


@pytest.mark.sglang_case(14)
@pytest.mark.parametrize("algorithm", ["EAGLE3", "NGRAM"])
def test_unequal_limits_of_running_requests_are_warned_of(server, algorithm):
    speculation = EAGLE3 if algorithm == "EAGLE3" else {"speculative_algorithm": "NGRAM"}
    succeeded(server.present(succeeded(server.preflight(max_running_requests=250))))
    result = succeeded(server.preflight(**speculation))
    assert result["sglang"]["effective"]["max_running_requests"] == 48
    assert "48" in warnings(result) and "250" in warnings(result)
    equal = succeeded(server.preflight(max_running_requests=250, **speculation))
    assert equal["sglang"]["effective"]["max_running_requests"] == 250
    assert "48" not in warnings(equal)


@pytest.mark.sglang_case(15)
@pytest.mark.parametrize(
    ("limit", "graphs", "warned"), [(64, 32, True), (48, 32, True), (None, 32, True), (32, 32, False)]
)
def test_batches_beyond_the_largest_graph_are_warned_of(server, limit, graphs, warned):
    options = {} if limit is None else {"max_running_requests": limit}
    result = succeeded(server.preflight(**EAGLE3, **options, **extra("--cuda-graph-max-bs", graphs)))
    assert ("graph" in warnings(result)) == warned


@pytest.mark.sglang_case(24)
@pytest.mark.parametrize(
    ("environment", "warned"),
    [
        ({"http_proxy": "http://proxy:3128"}, True),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "example.org"}, True),
        ({"all_proxy": "http://proxy:3128", "no_proxy": "localhost"}, True),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "localhost,127.0.0.1"}, False),
        ({"https_proxy": "http://proxy:3128"}, False),
    ],
    ids=["no-exception", "capitals", "half-an-exception", "excepted", "https"],
)
def test_a_proxy_in_the_way_of_the_warm_up_is_warned_of(server, environment, warned):
    result = succeeded(server.preflight(environment))
    assert ("no_proxy" in warnings(result)) == warned


@pytest.mark.sglang_case(26)
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_of_somebody_else_is_refused_before_the_old_server_is_stopped(server, address):
    server.go()
    wait_until(lambda: server.request("/health") == 200)
    before = server.identity()
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen()
        result = server.preflight(port=listener.getsockname()[1])
    assert result["failed"] and "port" in result["msg"] and "PID" in result["msg"]
    assert server.identity() == before


@pytest.mark.sglang_case(34)
@pytest.mark.parametrize(
    ("selection", "words", "fits"),
    [
        ({"gpus": ["2", "3"]}, ["--base-gpu-id", 2], False),
        ({"gpus": ["2", "3"]}, ["--base-gpu-id", 1], False),
        ({"gpus": ["0", "1", "2"]}, ["--gpu-id-step", 2], True),
        ({"gpus": ["0", "1"]}, ["--gpu-id-step", 2], False),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, ["--base-gpu-id", 2], False),
        ({"gpus": ["1", "2", "3"]}, ["--base-gpu-id", 1], True),
    ],
    ids=["base", "base-plus-tp", "step-fits", "step", "variable", "base-fits"],
)
def test_the_first_gpu_counts_within_the_selection(server, selection, words, fits):
    selection = dict(selection)
    result = server.preflight(selection.pop("environment", None), tp_size=2, **selection, **extra(*words))
    assert bool(result.get("failed")) is not fits
    if not fits:
        assert "2 GPUs" in result["msg"]
        return
    # And so it comes: the server is on the GPUs that the preflight names.
    succeeded(server.present(result))
    succeeded(server.start())
    succeeded(server.wait())
    holders = server.host.module("gpu_info")["holders"]
    assert sorted(uuid for row in holders for uuid in row["gpus"]) == sorted(result["sglang"]["gpus"])


@pytest.mark.sglang_case("adjusted configuration")
@pytest.mark.parametrize("version", ["0.5.7", "0.5.17", "0.5.23"])
def test_what_sglang_changes_is_reported_and_proven_as_changed(server, version):
    environment = {"STANDIN_VERSION": version}
    options = dict(EAGLE3, speculative_num_draft_tokens=8)
    checked = succeeded(server.preflight(environment, **options))
    changed = {"speculative_num_draft_tokens": {"requested": 8, "effective": 4}}
    assert checked["sglang"]["adjusted"] == changed
    server.go(environment=environment, **options)
    ready = succeeded(server.wait())["sglang"]
    assert ready["adjusted"] == changed and ready["mismatches"] == []


@pytest.mark.sglang_case(31)
@pytest.mark.parametrize("variable", ["TORCH_EXTENSIONS_DIR", "AITER_JIT_DIR"])
def test_the_lock_of_a_killed_compiler_is_named(server, tmp_path, variable):
    server.go(environment={**behave(compile_seconds=60), variable: str(tmp_path / "jit")})
    wait_until(lambda: list(tmp_path.glob("jit/*/lock*")))
    server.kill()
    (lock,) = tmp_path.glob("jit/*/lock*")
    result = succeeded(server.preflight({variable: str(tmp_path / "jit")}))
    if variable == "TORCH_EXTENSIONS_DIR":  # of the other one only the waiting can tell, see below
        assert str(lock) in warnings(result)
    server.stop()
    lock.touch()
    # When a process started is known to a second.
    os.utime(lock, (time.time() - 60, time.time() - 60))
    server.go(environment={variable: str(tmp_path / "jit")})
    wait_until(lambda: "Init torch distributed ends" in server.log())
    hung = server.wait(timeout=3)
    assert hung["failed"] and hung["reason"] in ("timeout", "jit_lock") and str(lock) in hung["msg"]
    lock.unlink()
    succeeded(server.wait())
