# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways in which the stand-in can be made to misbehave, beside those of test_server.py."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from harness import Host, Server, free_port, wait_for
from make_model import make_model

Launch = Callable[..., Server]


def parent_of(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def names(pid: int) -> Dict[str, int]:
    """Titles and PIDs of the children of a process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if parent_of(int(folder.name)) == pid:
                found[(folder / "cmdline").read_text().rstrip("\0").replace("\0", " ")] = int(folder.name)
        except OSError:
            continue
    return found


# ---- while starting


@pytest.mark.parametrize("phase", ["import", "torch", "weights", "kv_cache", "graphs", "draft_graphs", "warm_up"])
def test_dies_in_a_phase(launch: Launch, phase: str) -> None:
    server = launch(eagle=True, standin={"crash_at": phase, "crash_message": "torch.AcceleratorError: CUDA error: x"})
    assert server.wait() == -9
    assert "Scheduler hit an exception: Traceback" in server.log
    assert "\ntorch.AcceleratorError: CUDA error: x\n" in server.log
    assert ("Uvicorn running" in server.log) == (phase == "warm_up")
    assert ("Load weight end." in server.log) == (phase not in ("import", "torch", "weights"))


def test_dies_before_it_binds(launch: Launch) -> None:
    server = launch(standin={"crash_at": "bind", "crash_message": "no name"})
    assert server.wait() == 1
    assert "RuntimeError: no name" in server.log and "Uvicorn running" not in server.log


@pytest.mark.parametrize(("phase", "status"), [("torch", 0), ("graphs", 0), ("bind", 0), ("warm_up", 503)])
def test_hangs_in_a_phase(launch: Launch, phase: str, status: int) -> None:
    server = launch(standin={"hang_at": phase})
    wait_for(lambda: {"torch": "server_args", "graphs": "100%", "bind": "timings"}.get(phase, "Uvicorn") in server.log)
    assert server.status() == status and server.process.poll() is None


def test_progress_of_a_start(launch: Launch) -> None:
    server = launch("--cuda-graph-max-bs", "4", eagle=True, standin={"shards": 3, "graph_seconds": 0.05})
    server.wait_ready()
    log = server._log.read_bytes().decode()  # read_text() would turn the bars' \r into line ends
    assert [*map(int, re.findall(r"\rMulti-thread loading shards: +(\d+)% Completed", log))] == [0, 33, 66, 100] * 2
    assert re.findall(r"Capture (draft )?cuda graph begin", log) == ["", "draft "]
    assert len(re.findall(r"\rCapturing batches \(bs=1 avail_mem=[\d.]+ GB\): 100%\|\u2588{10}\| 3/3 \[", log)) == 2
    early = launch(version="0.5.7", environment={"CUDA_VISIBLE_DEVICES": "1"})
    early.wait_ready()
    assert "Loading safetensors checkpoint shards: 100% Completed | 4/4" in early.log


@pytest.mark.parametrize(
    ("no_proxy", "ready"), [(None, False), ("example.org", False), ("localhost", False), ("127.0.0.1,localhost", True)]
)
def test_warm_up_goes_through_a_proxy(launch: Launch, no_proxy: Optional[str], ready: bool) -> None:
    environment = {"http_proxy": "http://127.0.0.1:%d" % free_port()}
    if no_proxy:
        environment["no_proxy"] = no_proxy
    server = launch(environment=environment)
    if ready:
        wait_for(lambda: "fired up" in server.log)
    else:
        assert server.wait() == -9
        assert "Uvicorn running" in server.log and "Initialization failed. warmup error" in server.log


@pytest.mark.parametrize(("layers", "dies"), [([1, 3, 5], False), ([2, 15, 28], True)])
def test_draft_that_wants_other_layers(host: Host, launch: Launch, layers: List[int], dies: bool) -> None:
    config = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": layers}}
    draft = make_model(host.folder / "other", draft=True, config=config)
    server = launch("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft))
    if dies:
        assert server.wait() == -9
        assert "Uvicorn running" in server.log and "aux_hidden_states" in server.log
    else:
        server.wait_ready()


def test_draft_is_quantized_as_its_target(launch: Launch) -> None:
    server = launch("--quantization", "fp8", eagle=True)
    server.wait_ready()
    assert server.request("/server_info")[1]["speculative_draft_model_quantization"] == "fp8"


@pytest.mark.parametrize("cache", ["TORCH_EXTENSIONS_DIR", "AITER_JIT_DIR"])
def test_lock_of_a_killed_compiler_stops_the_next_start(tmp_path: Path, launch: Launch, cache: str) -> None:
    environment = {cache: str(tmp_path / "jit")}
    first = launch(environment=environment, standin={"compile_seconds": 30})
    (lock,) = wait_for(lambda: list(tmp_path.glob("jit/*/lock*")))
    first.process.kill()
    first.wait()
    second = launch(environment=environment)
    wait_for(lambda: "Init torch distributed ends" in second.log)
    assert lock.exists() and "Load weight begin" not in second.log
    wait_for(lambda: (str(lock) in second.log) == (cache == "AITER_JIT_DIR"))
    lock.unlink()
    second.wait_ready()
    assert not lock.exists()


# ---- files


@pytest.fixture
def folders(tmp_path: Path) -> Dict[str, str]:
    chosen = {"STANDIN_SHM_DIR": str(tmp_path / "shm"), "STANDIN_TMP_DIR": str(tmp_path / "t")}
    for folder in chosen.values():
        Path(folder).mkdir()
    return chosen


def prefixes(folder: str) -> List[str]:
    kinds = ("multi_tokenizer_args_", "nccl-", "psm_", "sgl_shm_", "sglang_loads_")
    found = [next(kind for kind in kinds if path.name.startswith(kind)) for path in Path(folder).iterdir()]
    return sorted(set(found))


@pytest.mark.parametrize(
    ("version", "left"),
    [
        ("0.5.12", ["multi_tokenizer_args_", "nccl-", "psm_", "sgl_shm_", "sglang_loads_"]),
        ("0.5.17", ["multi_tokenizer_args_", "psm_", "sglang_loads_"]),
        ("0.5.23", []),
    ],
)
def test_what_an_orderly_end_leaves(launch: Launch, folders: Dict[str, str], version: str, left: List[str]) -> None:
    server = launch("--enable-metrics", version=version, environment=folders)
    server.wait_ready()
    assert len(prefixes(folders["STANDIN_SHM_DIR"])) == 5
    maps = (Path("/proc") / str(server.process.pid) / "maps").read_text()
    (loads,) = Path(folders["STANDIN_SHM_DIR"]).glob("sglang_loads_tmp*_*.shm")
    assert str(loads) in maps
    server.process.terminate()
    server.wait()
    # A worker may still be tidying up when the main process has gone.
    wait_for(lambda: prefixes(folders["STANDIN_SHM_DIR"]) == left)
    wait_for(lambda: bool(list(Path(folders["STANDIN_TMP_DIR"]).iterdir())) == bool(left))


def test_stale_segments_make_each_start_fail(launch: Launch, folders: Dict[str, str]) -> None:
    strict: Dict[str, Any] = {"refuse_stale_segments": True}
    first = launch(environment=folders)
    first.wait_ready()
    beside = launch(environment=dict(folders, CUDA_VISIBLE_DEVICES="1"), standin=strict)
    beside.wait_ready()  # what a live process has mapped is not stale
    first.process.kill()
    first.wait()
    for _again in range(2):
        failed = launch(environment=folders, standin=strict)
        assert failed.wait() == 1 and "sglang_loads_" in failed.log


# ---- data parallel


@pytest.fixture
def replicas(launch: Launch) -> Server:
    """Two replicas of one GPU each."""
    server = launch("--dp", "2")
    server.wait_ready()
    return server


def test_replicas_have_a_controller(host: Host, replicas: Server) -> None:
    children = replicas.children()
    assert {"sglang::data_parallel_controller", "sglang::detokenizer"} <= set(children)
    below = names(children["sglang::data_parallel_controller"])
    assert {"sglang::scheduler_DP0_TP0", "sglang::scheduler_DP1_TP0"} <= set(below)
    assert [host.listed(gpu)[0][0] for gpu in (0, 1)] == [
        below["sglang::scheduler_DP%d_TP0" % number] for number in (0, 1)
    ]
    assert len(replicas.request("/v1/loads")[1]["loads"]) == 2
    replicas.process.terminate()
    assert replicas.wait() == -9
    wait_for(lambda: host.used(0) == host.used(1) == 0)


@pytest.mark.parametrize("victim", ["controller", "scheduler"])
def test_main_process_does_not_notice_its_controllers_end(host: Host, replicas: Server, victim: str) -> None:
    controller = replicas.children()["sglang::data_parallel_controller"]
    if victim == "controller":
        os.kill(controller, signal.SIGKILL)
    else:
        os.kill(controller, signal.SIGQUIT)  # as a scheduler does that hits an exception
    wait_for(lambda: host.used(0) == host.used(1) == 0)
    wait_for(lambda: replicas.status() == 503)
    assert replicas.process.poll() is None


def test_replica_that_cannot_load(host: Host, launch: Launch) -> None:
    host.hold("--gpu", 1, "--mib", 30000)
    server = launch("--dp", "2")
    assert server.wait() == 1
    assert "Not enough memory" in server.log


def test_children_that_outlive_the_main_process(host: Host, launch: Launch) -> None:
    server = launch("--dp", "2", standin={"outlive_parent": True, "orphan_seconds": 30})
    server.wait_ready()
    controller = server.children()["sglang::data_parallel_controller"]
    server.process.kill()
    server.wait()
    assert host.used(0) and host.used(1)
    os.kill(controller, signal.SIGKILL)
    wait_for(lambda: all(parent_of(host.listed(gpu)[0][0]) != controller for gpu in (0, 1)))


# ---- several nodes


def node(launch: Launch, rank: int, address: str, **options: Any) -> Server:
    """A node of a server with one GPU on each of two."""
    words = ["--tp", "2", "--nnodes", "2", "--node-rank", str(rank), "--dist-init-addr", address]
    options["environment"] = dict(options.get("environment", {}), CUDA_VISIBLE_DEVICES=str(rank))
    return launch(*words, **options)


def test_two_nodes(host: Host, launch: Launch) -> None:
    address = "127.0.0.1:%d" % free_port()
    second = node(launch, 1, address)
    wait_for(lambda: "Init torch distributed begin" in second.log)
    assert (second.status(), host.used(1)) == (0, 0)
    first = node(launch, 0, address)
    first.wait_ready()
    second.wait_ready()
    assert "sglang::scheduler_TP0" in first.children() and "sglang::scheduler_TP1" in second.children()
    assert (second.status("/health_generate"), second.status("/server_info")) == (200, 404)
    assert first.generate(8)["completion_tokens"] == 8
    second.process.kill()
    second.wait()
    wait_for(lambda: host.used(1) == 0)

    def hangs() -> bool:
        try:
            first.request("/generate", {"text": "x"}, timeout=0.4)
        except OSError:
            return True
        return False

    wait_for(hangs)
    assert first.status() == 200


@pytest.mark.parametrize(("version", "dies"), [("0.5.7", False), ("0.5.17", True)])
def test_node_that_dies_while_loading(launch: Launch, version: str, dies: bool) -> None:
    address = "127.0.0.1:%d" % free_port()
    first = node(launch, 0, address, version=version)
    second = node(launch, 1, address, version=version, standin={"die_at_load": True})
    assert second.wait() == -9
    if dies:
        assert first.wait() == 1 and "NCCL error" in first.log
    else:
        wait_for(lambda: "Load weight end" in first.log)
        assert first.process.poll() is None and first.status() == 0


@pytest.mark.parametrize(("version", "code"), [("0.5.17", -15), ("0.5.23", None)])
def test_second_node_is_told_to_leave_first(launch: Launch, version: str, code: Optional[int]) -> None:
    address = "127.0.0.1:%d" % free_port()
    first, second = node(launch, 0, address, version=version), node(launch, 1, address, version=version)
    first.wait_ready()
    second.wait_ready()
    second.process.terminate()
    if code is not None:
        assert second.wait() == code
        return
    wait_for(lambda: "Waiting for node rank 0" in second.log)
    assert second.status() == 200
    first.process.terminate()
    assert (first.wait(), second.wait()) == (0, 0)


# ---- while serving and leaving


def test_stumbles(launch: Launch) -> None:
    server = launch(standin={"fail_every": 3})
    server.wait_ready()
    body = {"text": "x", "sampling_params": {"max_new_tokens": 2}}
    assert [server.request("/generate", body)[0] for _request in range(6)] == [200, 200, 503, 200, 200, 503]


@pytest.mark.parametrize(
    ("version", "early", "late"), [("0.5.7", 200, 404), ("0.5.17", 200, 200), ("0.5.23", 404, 200)]
)
def test_loads_are_true_while_requests_run(launch: Launch, version: str, early: int, late: int) -> None:
    server = launch(
        "--enable-metrics", "--max-running-requests", "2", version=version, standin={"tokens_per_second": 5}
    )
    server.wait_ready()
    threads = [threading.Thread(target=server.generate, args=(1000,)) for _request in range(3)]
    for thread in threads:
        thread.start()
    running = 'sglang:num_running_reqs{engine_type="unified",model_name="%s"'
    wait_for(lambda: "sglang:num_queue_reqs" in server.request("/metrics")[1])
    wait_for(lambda: re.search(r"num_queue_reqs\{.*\} 1\.0", server.request("/metrics")[1]))
    assert running % server.request("/v1/models")[1]["data"][0]["id"] in server.request("/metrics")[1]
    assert (server.status("/get_load"), server.status("/v1/loads")) == (early, late)
    if late == 200:
        (load,) = server.request("/v1/loads")[1]["loads"]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (2, 1)
    if early == 200:
        (load,) = server.request("/get_load")[1]
        assert (load["num_reqs"], load["num_waiting_reqs"]) == (3, 1)
    while any(thread.is_alive() for thread in threads):
        assert server.request("/abort_request", {"rid": "", "abort_all": True})[0] == 200
        threads[0].join(0.05)
    assert re.search(r"num_running_reqs\{.*\} 0\.0", server.request("/metrics")[1])


def test_signal_to_the_group_kills_the_workers_in_the_drain(launch: Launch) -> None:
    server = launch(standin={"tokens_per_second": 5})
    server.wait_ready()
    answers: List[Any] = []
    request = threading.Thread(target=lambda: answers.append(server.request("/generate", {"text": "x"})))
    request.start()
    wait_for(lambda: server.request("/v1/loads")[1]["loads"][0]["num_running_reqs"])
    os.killpg(server.process.pid, signal.SIGTERM)
    assert server.wait() == -9
    request.join()
    assert answers[0][0] == 0
    assert "crashed with exit code -15. Triggering SIGQUIT" in server.log


def test_slow_release_of_pinned_memory(host: Host, launch: Launch) -> None:
    server = launch(version="0.5.23", standin={"unpin_seconds": 1.0})
    server.wait_ready()
    assert host.used()  # and whoever asks NVML is there, so that the next answer comes at once
    server.process.terminate()
    wait_for(lambda: "Draining" in server.log)
    assert host.used() and server.process.poll() is None
    assert server.wait() == 0
