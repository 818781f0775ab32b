# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The classification of logs."""

from __future__ import annotations

import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.failure_reasons import classify

STAMP = "[2026-01-02 03:04:05 TP3] "


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...", "out_of_memory"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "out_of_memory"),
        ("RuntimeError: CUDA error: out of memory", "out_of_memory"),
        (
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
            "pre_model_load_memory=78.1, local_gpu_memory=48.9",
            "memory_unbalanced",
        ),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "not_enough_memory"),
        (
            # 0.5.17 on an H200
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.001. Raise "
            "--mem-fraction-static above 0.002 (minimum viable = 1 - available/pre = 0.0013). If using speculative "
            "decoding, draft weights are now counted.",
            "not_enough_memory",
        ),
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): "
            "address already in use",
            "port_in_use",
        ),
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        ("ValueError: Port 30000 is not available", "port_in_use"),
        (
            "OSError: /models/none is not a local folder and is not a valid model identifier listed on "
            "'https://huggingface.co/models'",
            "model_not_found",
        ),
        (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': '/models/none'.",
            "model_not_found",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/models/none/config.json'", "model_not_found"),
        ("RuntimeError: Cannot find any model weights with `/models/empty`", "model_not_found"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/models/draft/config.json'", "draft_not_found"),
        ("OSError: Incorrect path_or_model_id: '/models/x-eagle3'.", "draft_not_found"),
        (
            "RuntimeError: Error(s) in loading state_dict: size mismatch for embed_tokens.weight: copying a param",
            "draft_mismatch",
        ),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x12288 and 6144x4096)", "draft_mismatch"),
        ("AssertionError: aux_hidden_states mismatch: expected 3 layers", "draft_mismatch"),
        ("Exception: Capture cuda graph failed: CUBLAS_STATUS_NOT_INITIALIZED", "graph_capture_failed"),
        ("launch_server.py: error: unrecognized arguments: --speculative-steps 3", "bad_argument"),
        ("launch_server.py: error: argument --tp-size: invalid int value: 'two'", "bad_argument"),
        ("ValueError: Unknown speculative algorithm name: FOO", "bad_argument"),
        ("ModuleNotFoundError: No module named 'sglang'", "missing_dependency"),
        ("/usr/bin/python3: No module named sglang", "missing_dependency"),
        (
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            "missing_dependency",
        ),
        ("x.service: Failed at step EXEC spawning /no/python3: No such file or directory", "missing_dependency"),
        ("RuntimeError: CUDA error: no CUDA-capable device is detected", "driver_error"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11080).", "driver_error"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "driver_error"),
        ("RuntimeError: CUDA error: invalid device ordinal", "driver_error"),
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error",
            "nccl_error",
        ),
        ("Initialization failed. warmup error: Traceback (most recent call last):", "warmup_failed"),
        ("Watchdog timeout (self.watchdog_last_forward_ct=12)", "watchdog_timeout"),
        ("Rank 0 scheduler died with exit code: -9", "killed"),
        ("PermissionError: [Errno 13] Permission denied: '/models/secret/config.json'", "permission_denied"),
        ("KeyError: 'something new'", "unknown"),
    ],
)
@pytest.mark.parametrize("stamp", ["", STAMP])
def test_single_lines(line, code, stamp):
    reason = classify(["harmless", stamp + line, "harmless"])
    assert reason.code == code
    assert reason.line == (stamp + line)
    assert reason.sentence and reason.remedy and reason.line.rstrip(".") in reason.message()


@pytest.mark.parametrize(
    "line",
    [
        "OpenAI Responses API (/v1/responses) disabled: OpenAIServingResponses init failed "
        "(ModuleNotFoundError: No module named 'openai_harmony')",
        "server_args=ServerArgs(draft='not found', o='CUDA out of memory', x='address already in use')",
        "Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",
        "max_total_num_tokens=131072, chunked_prefill_size=4096, available_gpu_mem=137.63 GB",
        "UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown",
        "Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled'",
        "Capture cuda graph end. elapsed=5.1 s. avail mem=30.2 GB",
        "Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'",
        'INFO:     127.0.0.1:33672 - "GET /health HTTP/1.1" 503 Service Unavailable',
    ],
)
def test_harmless_lines_are_no_reason(line):
    assert classify([STAMP + line]).code == "unknown"


def test_the_cause_counts_and_not_what_follows_from_it():
    lines = [
        STAMP + "ncclRemoteError: A call failed possibly due to a network error",
        STAMP + "Scheduler hit an exception: Traceback (most recent call last):",
        STAMP + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB",
        STAMP + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.00 GiB",
        "Received sigquit from a child process. It usually means the child failed.",
        "Killed",
    ]
    reason = classify(lines, 137)
    assert (reason.code, reason.line) == ("out_of_memory", lines[2])


def test_running_out_of_memory_in_a_capture_is_running_out_of_memory():
    assert classify(["Exception: Capture cuda graph failed: CUDA out of memory."]).code == "out_of_memory"


@pytest.mark.parametrize(
    ("status", "killed", "code"),
    [
        (137, False, "killed"),
        (-9, False, "killed"),
        (None, True, "killed"),
        (1, False, "unknown"),
        (None, False, "unknown"),
    ],
)
def test_without_a_line_the_exit_status_counts(status, killed, code):
    reason = classify(["loading"], status, killed)
    assert (reason.code, reason.line) == (code, "")


@pytest.mark.parametrize(
    "said",
    [
        "Received sigquit from a child process. It usually means the child failed.",
        "SIGQUIT received. signum=3, frame=None. It usually means one child failed.",
        STAMP + "Scheduler hit an exception: Traceback (most recent call last):",
    ],
)
def test_a_server_that_ended_itself_was_not_killed(said):
    """Up to 0.5.18 SGLang ends itself by SIGKILL, whatever the cause."""
    reason = classify(["IndexError: list index out of range", said], 137, killed=True)
    assert (reason.code, reason.line) == ("unknown", "IndexError: list index out of range")
    # A worker that the kernel killed says nothing.
    assert classify([said], 137).code == "killed"


def test_the_unknown_shows_the_outermost_exception():
    lines = ["KeyError: 'a'", "Traceback:", "my.package.SpecialError: b", "bye"]
    assert classify(lines).line == "my.package.SpecialError: b"


@pytest.mark.parametrize(
    "text", ["eagle layer ids ", "aux_hidden_states ", "expected shape ", "draft not ", "NCCL WARN "]
)
def test_a_long_line_takes_no_time(text):
    """Users' texts may be logged."""
    began = time.monotonic()
    assert classify([text * 20000]).code == "unknown"
    assert time.monotonic() - began < 2


def test_both_ends_of_a_long_line_count():
    filler = "x" * 5000
    assert classify(["CUDA out of memory" + filler]).code == "out_of_memory"
    reason = classify([filler + "CUDA out of memory"])
    assert reason.code == "out_of_memory" and len(reason.line) < 1100


def test_no_log_at_all():
    assert classify([]).code == "unknown"
