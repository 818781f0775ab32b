# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sglang_preflight with the real parser: no configuration that dies or silently differs passes without a word."""

from __future__ import annotations

import functools
import socket
from types import SimpleNamespace

import pytest
from cases import CASES, FIELDS, expected

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuIdentity, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.parser_probe import run_probe
from ansible_collections.inferops.sglang.plugins.modules import sglang_preflight


class Gpus:
    """An NVML session of a host with four GPUs."""

    system = SimpleNamespace(count=4)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def identify(self, indices):
        return tuple(GpuReading(i, GpuIdentity(i, f"GPU-{i}", f"0000:0{i}:00.0", i, "NVIDIA H200")) for i in indices)


@pytest.fixture
def preflight(run_module, release, models, tmp_path, monkeypatch):
    """Run the module on a case; the call returns (exit status, result)."""
    monkeypatch.setattr(sglang_preflight, "open_session", lambda *_arguments: Gpus())
    monkeypatch.setattr(sglang_preflight, "run_probe", functools.partial(run_probe, wrap=release.wrap))

    def run(case, **more):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        folders = {name: str(tmp_path / name) for name in ("state_dir", "run_dir", "etc_dir", "unit_dir")}
        options = {name: models.get(value, value) for name, value in case.options.items()}
        return run_module(
            sglang_preflight,
            {
                **folders,
                "manager": "process",
                "python": release.python,
                "model_path": models["TARGET"],
                "port": port,
                "parser": "required",
                "environment": case.environment,
                "extra_args": [models.get(word, word) for word in case.extra],
                **options,
                **more,
            },
        )

    return run


# Accepted by a parser, and refused all the same: from a release on (None: never), and what must be said.
OWN_REFUSALS = {
    "steps and topk": ((0, 5, 7), None, "give all three numbers or none"),
    "no draft model": ((0, 5, 7), None, "needs speculative_draft_model_path"),
    "no algorithm": ((0, 5, 7), None, "given without speculative_algorithm"),
    "adaptive": ((0, 5, 11), (0, 5, 14), "speculative_adaptive"),
    "adaptive 5/4/8": ((0, 5, 7), None, "would switch adaptive speculation off"),
    "adaptive STANDALONE": ((0, 5, 7), None, "would switch adaptive speculation off"),
    "5/4/8, second worker": ((0, 5, 11), (0, 5, 13), "SGLANG_ENABLE_SPEC_V2"),
    "no overlap, second worker": ((0, 5, 11), (0, 5, 13), "SGLANG_ENABLE_SPEC_V2"),
    "abbreviated": ((0, 5, 7), None, "mean the same"),
}
# Accepted, and a warning says what becomes of it.
WARNINGS = {
    "3/1/8": ((0, 5, 7), None, "speculative_num_draft_tokens 8 becomes 4"),
    "NEXTN": ((0, 5, 7), None, "NEXTN to EAGLE"),
    "no overlap, second worker": ((0, 5, 7), (0, 5, 11), "disable_overlap_schedule from True to False"),
    "5/4/8": ((0, 5, 11), (0, 5, 13), "eagle_worker.py"),
    "3/1/4, first worker": ((0, 5, 14), None, "SGLANG_ENABLE_SPEC_V2"),
}

# The module writes the name of an algorithm as every release knows it.
WRITTEN_AS = {"lower case": "3/1/4"}


def applies(table, name, release):
    """What a table has to say about a case and a release, "" for nothing."""
    since, until, text = table.get(name, ((9, 9, 9), None, ""))
    return text if since <= release.numbers and (until is None or release.numbers < until) else ""


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_dies_or_differs_passes_in_silence(preflight, release, name):
    code, result = preflight(CASES[name])
    wanted = expected(WRITTEN_AS.get(name, name), release.numbers)
    refusal = applies(OWN_REFUSALS, name, release)
    if isinstance(wanted, str) or refusal:
        assert (code, result["failed"]) == (1, True)
        assert refusal in result["msg"]
        return
    assert code == 0, result["msg"]
    facts = result["sglang"]
    assert (facts["version"], facts["parser"]) == (release.version, f"sglang {release.version}")
    effective = {"speculative_adaptive": False, **facts["effective"]}
    assert tuple(effective[field] for field in FIELDS) == wanted
    text = applies(WARNINGS, name, release)
    assert not text or any(text in check["message"] for check in result["checks"] if check["status"] == "warning")


def test_the_limit_on_requests_that_comes_with_speculation_is_mentioned(preflight):
    _code, result = preflight(CASES["3/1/4"])
    assert any("at most 48 requests" in check["message"] for check in result["checks"])
