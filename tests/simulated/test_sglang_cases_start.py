# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts from bug reports that end badly, late or only nearly well: what the waiting says of them."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import threading

import pytest

from .conftest import simulated_server, unused_port
from .server import EAGLE3, behave, succeeded
from .waiting import is_alive, wait_until

LOADING = ("starting", "connecting", "loading_weights", "loading_draft", "allocating_cache", "capturing_graphs")
# Nothing here depends on what SGLang's own parser says.
UNASKED = {"parser": "skip"}


def died(result, reason, phases=LOADING):
    """A start whose end was noticed soon, with a reason and the end of the log.

    Whether the start saw it or the waiting did is a matter of time, and only the latter tells a phase.
    """
    assert result["failed"] and result["reason"] == reason, result
    assert result.get("phase", phases[0]) in phases and result.get("waited", 0) < 20
    assert result["log_tail"]
    return result


# ---- dying


@pytest.mark.sglang_case(11, "dies before it listens")
@pytest.mark.parametrize("phase", ["import", "torch", "weights", "kv_cache", "graphs", "draft_graphs", "bind"])
def test_a_start_that_dies_before_it_listens_shows_its_error(server, phase):
    error = "KeyError: 'candidate_steps' of the adaptive controller"
    result = died(server.try_start(environment=behave(crash_at=phase, crash_message=error), **EAGLE3), "unknown")
    assert any(error in line for line in result["log_tail"]) and error in result["msg"]
    assert server.request("/health") == 0


@pytest.mark.sglang_case(7, "dies in its warm-up")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("RuntimeError: aux_hidden_states: expected 3 layers, shape [4096]", "draft_mismatch"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (14x1536 and 3072x512)", "draft_mismatch"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out_of_memory"),
    ],
    ids=["layers", "widths", "memory"],
)
def test_a_draft_that_kills_the_server_in_its_warm_up_is_noticed_at_once(server, error, reason):
    """No preflight can see this one: the draft's files look as they should."""
    environment = behave(crash_at="warm_up", crash_message=error, warmup_seconds=0.7)
    died(server.try_start(environment=environment, **EAGLE3), reason, phases=["warming_up"])


@pytest.mark.sglang_case(16)
@pytest.mark.parametrize(
    ("behaviour", "options", "reason"),
    [
        ({}, {"mem_fraction_static": 0.01}, "not_enough_memory"),
        ({"weights_mib": 140000}, {}, "not_enough_memory"),
        ({"draft_weights_mib": 140000}, EAGLE3, "out_of_memory"),
        ({"die_at_load": True}, {}, "out_of_memory"),
    ],
    ids=["fraction", "weights", "draft", "load"],
)
def test_too_little_memory_is_told_from_other_deaths(server, behaviour, options, reason):
    result = died(server.try_start(environment=behave(**behaviour), **options), reason)
    assert "mem_fraction_static" in result["msg"]
    # It is not started again by itself.
    assert succeeded(server.module("sglang_process", state="inspected"))["process"]["running"] is False


@pytest.mark.sglang_case(17)
@pytest.mark.parametrize("gpu", [0, 1])
def test_the_gate_looks_at_each_gpu_and_the_server_at_the_least_free_one(host, server, gpu):
    stranger = host.hold(gpu, 30000)
    gate = host.module("gpu_wait_free", gpus=["0", "1"], timeout=0.4, stable_for=0.1, interval=0.05)
    assert gate["failed"] and "GPU %d" % gpu in gate["msg"] and "GPU %d" % (1 - gpu) not in gate["msg"]
    died(server.try_start(tp_size=2), "memory_unbalanced")
    assert is_alive(stranger["pid"])


@pytest.mark.sglang_case(18)
@pytest.mark.parametrize(
    "behaviour",
    [
        {"graph_capture_failure": True},
        {"crash_at": "graphs", "crash_message": "Exception: Capture cuda graph failed: shape is not static"},
        {"crash_at": "draft_graphs", "crash_message": "Exception: Capture draft graph failed: shape is not static"},
    ],
    ids=["memory", "target", "draft"],
)
def test_a_failed_capture_of_graphs_is_classified(server, behaviour):
    reason = "out_of_memory" if "graph_capture_failure" in behaviour else "graph_capture_failed"
    died(server.try_start(environment=behave(**behaviour), **EAGLE3), reason, phases=["capturing_graphs"])


@pytest.mark.sglang_case(24)
@pytest.mark.parametrize("answer", [403, 502, None], ids=["403", "502", "refused"])
def test_a_proxy_that_answers_the_warm_up_ends_the_server(server, answer):
    with proxy(answer) as address:
        result = server.try_start(environment={"http_proxy": address, **behave(warmup_seconds=0.7)})
        died(result, "warmup_failed", phases=["warming_up"])
    # The waiting itself asks the server directly.
    server.go(environment={"http_proxy": "http://127.0.0.1:9", "no_proxy": "localhost,127.0.0.1"})
    succeeded(server.wait())


@contextlib.contextmanager
def proxy(answer):
    """The address of an HTTP proxy that answers everything so; None: nobody listens there."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(answer)

        def log_message(self, *args):
            pass

    address = ("127.0.0.1", unused_port())
    if answer is None:
        yield "http://%s:%d" % address
        return
    with http.server.HTTPServer(address, Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "http://%s:%d" % address
        server.shutdown()


# ---- hanging, and taking long


@pytest.mark.sglang_case(19)
def test_a_slow_capture_of_graphs_needs_a_timeout_that_covers_it(server):
    server.go(environment=behave(graph_seconds=6), **EAGLE3, **UNASKED)
    wait_until(lambda: "Capturing batches" in server.log())
    early = server.wait(timeout=0.3)
    assert early["failed"] and (early["reason"], early["phase"]) == ("timeout", "capturing_graphs")
    assert "timeout" in early["msg"]
    # It was left alone, and gets there.
    assert succeeded(server.wait())["sglang"]["accept_length"] > 2


@pytest.mark.sglang_case(31)
@pytest.mark.parametrize(
    ("phase", "line", "shown"),
    [
        ("torch", "server_args=", "starting"),
        ("weights", "Init torch distributed ends", "connecting"),
        ("graphs", "Capturing batches (bs=1 avail", "capturing_graphs"),
        ("warm_up", "Uvicorn running", "warming_up"),
    ],
)
def test_a_start_that_hangs_fails_with_its_phase(server, phase, line, shown):
    server.go(environment=behave(hang_at=phase), **UNASKED)
    wait_until(lambda: line in server.log())
    result = server.wait(timeout=0.5)
    assert result["failed"] and (result["reason"], result["phase"]) == ("timeout", shown)
    assert server.identity() is not None


@pytest.mark.sglang_case(25)
@pytest.mark.parametrize("version", ["0.5.7", "0.5.17", "0.5.23"])
def test_a_server_that_lists_its_model_while_it_warms_up_is_not_ready(server, version):
    server.go(environment=behave(version=version, never_ready=True), **UNASKED)
    wait_until(lambda: server.request("/v1/models") == 200)
    assert (server.request("/health"), server.request("/server_info")) == (503, 200)
    early = server.wait(timeout=0.3)
    assert early["failed"] and (early["reason"], early["phase"]) == ("timeout", "warming_up")


@pytest.mark.sglang_case(25)
def test_a_server_is_ready_after_its_warm_up(server):
    server.go(environment=behave(warmup_seconds=1.5), **UNASKED)
    assert succeeded(server.wait())["sglang"]["ready_after"] >= 1.5


# ---- the port


@pytest.mark.sglang_case(26)
def test_a_port_that_is_taken_while_the_server_loads_is_not_waited_for(server):
    succeeded(server.present(succeeded(server.preflight()), behave(load_seconds=30)))
    succeeded(server.start())
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", server.port))
        listener.listen()
        result = server.wait(request_timeout=0.3)
    assert result["failed"] and result["reason"] in ("foreign_listener", "port_in_use")
    assert str(server.port) in result["msg"] and "PID %d" % os.getpid() in result["msg"]


@pytest.mark.sglang_case("an older server still answers")
def test_what_an_older_server_answers_proves_nothing(host, server, tmp_path):
    server.go()
    server.prove()
    checked = succeeded(server.preflight(**EAGLE3))
    succeeded(server.present(checked))
    result = server.wait(timeout=5)
    assert result["failed"] and result["reason"] == "stale_process"
    # Nor does that of another instance on the same port.
    with simulated_server(host, tmp_path / "other") as other:
        other.port = server.port
        succeeded(other.present(succeeded(other.preflight(port=unused_port(), gpus=["1"]))))
        refused = other.start()
        assert refused["failed"] and "PID %d" % server.identity().pid in refused["msg"]


# ---- shared memory


@pytest.fixture
def shared(server, tmp_path):
    """The folder that is the host's /dev/shm for the server and the modules."""
    folders = {"STANDIN_SHM_DIR": str(tmp_path / "shm"), "STANDIN_TMP_DIR": str(tmp_path / "t")}
    for name, folder in folders.items():
        os.mkdir(folder)
        server.host.environment[name] = server.environment[name] = folder
    return tmp_path / "shm"


@pytest.mark.sglang_case(3)
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "left-by-another"])
def test_a_crash_loop_over_shared_memory_ends_with_the_next_stop(server, shared, killed):
    strict = behave(refuse_stale_segments=True)
    if killed:
        server.go()
        succeeded(server.wait())
        server.kill()
    else:
        (shared / "sglang_loads_tmp_deadbeef.shm").write_bytes(bytes(16))
    (stale,) = shared.glob("sglang_loads_*.shm")
    os.utime(stale, (1e9, 1e9))  # older than every server that runs on this machine
    keep = shared / "segment-of-somebody-else"
    keep.write_bytes(bytes(16))
    for _again in range(2):
        result = server.try_start(environment=strict)
        assert result["failed"] and stale.name in "\n".join(result["log_tail"])
    server.stop()
    assert not list(shared.glob("sglang_loads_*")) and keep.exists()
    server.go(environment=strict)
    succeeded(server.wait())


# ---- several nodes: two instances, each as on a host of its own


@pytest.fixture
def nodes(host, tmp_path, request):
    """Started nodes; what they do is the test's parameter, by default nothing special."""
    with contextlib.ExitStack() as stack:
        address = "127.0.0.1:%d" % unused_port()
        started = []
        version, *behaviours = getattr(request, "param", ("0.5.17", {}, {}))
        for rank, more in enumerate(behaviours):
            node = stack.enter_context(simulated_server(host, tmp_path / ("node%d" % rank)))
            node.target = started[0].target if started else node.target  # one folder on all hosts
            words = ["--nnodes", "2", "--node-rank", str(rank), "--dist-init-addr", address]
            node.go(
                tp_size=2, gpus=[str(rank)], extra_args=words, environment=behave(version=version, **more), **UNASKED
            )
            started.append(node)
        yield started


def stopped(nodes):
    """End all nodes, the first one first, and see that nothing holds a GPU."""
    for node in nodes:
        node.stop(grace=1)  # the requests of the proof never end
        assert node.family() == {}


@pytest.mark.sglang_case(20)
@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (("0.5.17", {}, {"die_at_load": True, "load_seconds": 4}), "nccl_error"),
        (("0.5.7", {}, {"die_at_load": True, "load_seconds": 4}), "timeout"),
    ],
    indirect=["nodes"],
    ids=["noticed", "hanging"],
)
def test_a_node_that_dies_while_loading_fails_the_first_one_and_both_are_stopped(nodes, reason):
    first, second = nodes
    lost = second.wait(rank_zero="127.0.0.1:%d" % first.port)
    assert lost["failed"] and lost["reason"] == "out_of_memory"
    result = first.wait(timeout=3)
    assert result["failed"] and result["reason"] == reason
    assert first.request("/health") == 0
    stopped(nodes)


@pytest.mark.sglang_case(21, "the health of another node")
@pytest.mark.parametrize("nodes", [("0.5.7", {}, {}), ("0.5.17", {}, {}), ("0.5.23", {}, {})], indirect=True)
def test_only_generating_shows_that_another_node_is_gone(nodes):
    first, second = nodes
    succeeded(first.wait())
    assert second.request("/health") == 200
    succeeded(second.wait(rank_zero="127.0.0.1:%d" % first.port))
    second.kill()
    assert first.request("/health") == 200
    result = first.wait(request_timeout=0.4)
    assert result["failed"] and result["reason"] == "generation_timeout"
    stopped(nodes)


@pytest.mark.sglang_case("the health of another node")
def test_the_health_of_another_node_is_not_taken_for_the_servers(nodes):
    """Asked as if it were the first node it says 200, and can do nothing."""
    _first, second = nodes
    wait_until(lambda: second.request("/health") == 200)
    result = second.wait(timeout=5, request_timeout=0.4)
    assert result["failed"] and "rank" in result["msg"]


# ---- a service manager that never gives up


@pytest.mark.sglang_case(37)
@pytest.mark.parametrize("phase", ["weights", "warm_up"])
def test_a_unit_that_is_started_again_and_again_is_a_failure(services, server, phase):
    environment = behave(crash_at=phase, crash_message="RuntimeError: num_steps")
    checked = succeeded(server.preflight(environment, **EAGLE3))
    succeeded(server.present(checked, environment, manager="systemd"))
    command = " ".join(checked["sglang"]["command"])
    unit = services.systemd(
        "sglang-main.service",
        command=["/bin/sh", "-c", "echo ready; exec " + command],
        environment=dict(server.environment, **environment),
        restart=True,
    )
    wait_until(lambda: unit.state["restarts"] >= 3, 30)
    result = server.wait(manager="systemd", timeout=20)
    assert result["failed"] and result["reason"] == "restarted"
    assert "again" in result["msg"]
