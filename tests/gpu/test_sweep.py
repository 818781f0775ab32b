# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sweep with a real SGLang: without speculation, with EAGLE-3 at 1, 3 and 5 steps, and the one that switches by load.

Where the time is short (GPU_TEST_SWEEP_SECONDS), it ends early, and the same again in the same folder
(GPU_TEST_SWEEP_DIR), on another machine of the kind as well, goes on with what is left.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

PYTHON = os.environ.get("GPU_TEST_SGLANG_PYTHON")
TARGET, DRAFT = os.environ.get("GPU_TEST_TARGET"), os.environ.get("GPU_TEST_DRAFT")
ENVIRONMENT = json.loads(os.environ.get("GPU_TEST_SGLANG_ENV", "{}"))
ARGUMENTS = json.loads(os.environ.get("GPU_TEST_SGLANG_ARGS", "[]"))
MEM_FRACTION = float(os.environ.get("GPU_TEST_MEM_FRACTION", "0.2"))
ACCEPT = json.loads(os.environ.get("GPU_TEST_ACCEPT", "{}"))
SECONDS = float(os.environ.get("GPU_TEST_SWEEP_SECONDS", "420"))
FOLDER = os.environ.get("GPU_TEST_SWEEP_DIR")
REPORT = os.environ.get("GPU_TEST_REPORT")
# Variables of the sweep that are to be others than below, as for a GPU that is slower or a model that is larger.
OTHERS = json.loads(os.environ.get("GPU_TEST_SWEEP_VARIABLES", "{}"))
STEPS = OTHERS.get("sglang_sweep_num_steps", [1, 3, 5])
CONCURRENCIES = OTHERS.get("sglang_sweep_concurrencies", [1, 2, 4, 8])
MOST_REQUESTS = OTHERS.get("sglang_max_running_requests", 32)
ADAPTIVE = OTHERS.get("sglang_sweep_adaptive", True)

pytestmark = pytest.mark.skipif(
    not (PYTHON and TARGET and DRAFT),
    reason="GPU_TEST_SGLANG_PYTHON, GPU_TEST_TARGET and GPU_TEST_DRAFT name no SGLang to test with",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The sweep's folder; what is in it at the end is kept where GPU_TEST_REPORT says."""
    path = pathlib.Path(FOLDER) if FOLDER else tmp_path_factory.mktemp("sweeps") / "tiny"
    yield path
    if REPORT and path.is_dir():
        shutil.copytree(path, REPORT, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory, module):
    """The instance's folder; what still runs at the end is stopped."""
    path = tmp_path_factory.mktemp("state")
    yield path
    module("sglang_process", instance="gpusweep", state="stopped", manager="process", state_dir=str(path), grace=30)


@pytest.fixture(scope="module")
def swept(collections, state_dir, folder, tmp_path_factory, note, idle):
    """What one run of the playbook made of the folder."""
    inventory = tmp_path_factory.mktemp("run") / "hosts.yml"
    variables = {
        "ansible_python_interpreter": sys.executable,
        "sglang_instance": "gpusweep",
        "sglang_manager": "process",
        "sglang_state_dir": str(state_dir),
        "sglang_python": PYTHON,
        "sglang_environment": ENVIRONMENT,
        "sglang_extra_args": ARGUMENTS,
        "sglang_model_path": TARGET,
        "sglang_port": 30118,
        "sglang_gpus": ["0"],
        "sglang_mem_fraction_static": MEM_FRACTION,
        "sglang_max_running_requests": MOST_REQUESTS,
        "sglang_spec_algorithm": "EAGLE3",
        "sglang_spec_draft_model_path": DRAFT,
        "sglang_spec_eagle_topk": 1,
        "sglang_ready_timeout": 240,
        "sglang_stop_timeout": 30,
        "sglang_progress_interval": 5,
        # Each point is load enough.
        "sglang_soak_requests": 8,
        "sglang_sweep_dir": str(folder),
        "sglang_sweep_name": "tiny EAGLE-3",
        "sglang_sweep_num_steps": STEPS,
        "sglang_sweep_adaptive": ADAPTIVE,
        "sglang_sweep_concurrencies": CONCURRENCIES,
        "sglang_sweep_repeats": 3,
        "sglang_sweep_check_all": False,
        "sglang_sweep_stop_after": SECONDS,
        # The page may be made of results.json later, where there is matplotlib.
        "sglang_sweep_html": False,
        "sglang_benchmark_output_len": 64,
        "sglang_benchmark_prompts_per_stream": 2,
        "sglang_benchmark_num_prompts_min": 4,
        **OTHERS,
    }
    hosts = {"all": {"hosts": {"gpu-host": {"ansible_connection": "local"}}, "vars": variables}}
    inventory.write_text(json.dumps(hosts))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), "inferops.sglang.spec_sweep"],
        env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), COLUMNS="160"),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=580,
    )
    print(done.stdout)
    results = json.loads((folder / "results.json").read_text())
    rows = {row["name"]: row for row in results["configurations"]}
    note(
        "sweep",
        rc=done.returncode,
        seconds=round(time.monotonic() - began, 1),
        throughput={
            name: {point["concurrency"]: point["median"].get("output_throughput") for point in row["points"]}
            for name, row in rows.items()
        },
        starts={name: row.get("took") for name, row in rows.items()},
        points={name: [point.get("took") for point in row["points"]] for name, row in rows.items()},
        adaptive=results["analysis"]["adaptive"],
        crossovers=results["analysis"]["crossovers"],
        summary=results["analysis"]["summary"],
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return results, rows


@pytest.fixture(scope="module")
def finished(swept):
    """The same, where nothing is left to measure."""
    results, rows = swept
    if not results["sweep"]["ended"]:
        pytest.skip("the time was too short: run it again with GPU_TEST_SWEEP_DIR, with what is in GPU_TEST_REPORT")
    return results, rows


def test_what_ran_before_is_back(swept, module, state_dir):
    """Nothing ran, so nothing runs."""
    looked = module(
        "sglang_process", instance="gpusweep", state="inspected", manager="process", state_dir=str(state_dir)
    )
    assert not looked["process"]["running"]
    assert not module("gpu_wait_free", gpus=["0"], timeout=30, stable_for=1).get("failed")


def test_every_point_was_measured(finished):
    _results, rows = finished
    wanted = ["baseline", *(f"eagle3-steps{steps}" for steps in STEPS), *(["adaptive"] if ADAPTIVE else [])]
    assert list(rows) == wanted
    for name, row in rows.items():
        assert row["state"] == "proven", (name, row["message"])
        assert [point["concurrency"] for point in row["points"]] == CONCURRENCIES, name
        assert {point["state"] for point in row["points"]} == {"measured"}, (name, row["points"])
        assert row["max_running_requests"] == MOST_REQUESTS and row["hardware"]["count"] == 1
        assert "speculative_num_steps" in row["effective"]


def test_the_acceptance_is_the_known_one(finished):
    _results, rows = finished
    assert {point["median"].get("accept_length") for point in rows["baseline"]["points"]} == {None}
    for steps in STEPS:
        for point in rows[f"eagle3-steps{steps}"]["points"]:
            assert {repeat["accept_length_source"] for repeat in point["repeats"]} == {"requests"}
            if str(steps) in ACCEPT:
                assert point["median"]["accept_length"] == pytest.approx(ACCEPT[str(steps)], rel=0.15)


def test_speculation_wins_with_one_request_and_loses_with_many(finished):
    results, _rows = finished
    analysis = results["analysis"]
    speedups = {(item["configuration"], item["concurrency"]): item for item in analysis["speedups"]}
    arms = [f"eagle3-steps{steps}" for steps in STEPS]
    assert any(speedups[arm, CONCURRENCIES[0]]["verdict"] == "faster" for arm in arms)
    assert any(speedups[arm, CONCURRENCIES[-1]]["verdict"] == "slower" for arm in arms)
    crossing = [item for item in analysis["crossovers"] if item["state"] == "crosses"]
    assert crossing, analysis["crossovers"]
    for item in crossing:
        assert CONCURRENCIES[0] <= item["between"][0] < item["between"][1] <= CONCURRENCIES[-1]


@pytest.mark.skipif(not ADAPTIVE, reason="GPU_TEST_SWEEP_VARIABLES has sglang_sweep_adaptive: false")
def test_the_adaptive_one_is_computed_and_switches(finished):
    results, rows = finished
    row = rows["adaptive"]
    assert row["adaptive"] and row["effective"]["speculative_adaptive"] is True
    config = row["settings"]["adaptive_config"]
    assert config == results["analysis"]["adaptive"]["config"]
    # Speculation is off for the largest batches, and on for the smallest.
    assert config[max(config, key=int)]["candidate_steps"] == [0]
    assert max(config["1"]["candidate_steps"]) > 0
