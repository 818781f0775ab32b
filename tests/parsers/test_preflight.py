# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the releases make of configurations, and that no preflight lets one pass in silence that dies or differs.

Both in one test, since a question takes its time: the parser's answer is taken from the preflight where that asks.
"""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from cases import CASES, EXPECTED, FIELDS, expected

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuIdentity, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_preflight
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import (
    ACCEPTED,
    REFUSED,
    run_probe,
)


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
    """Run the module on a case; the call returns (exit status, result, the parser's answers)."""
    answers = []

    def probe(*arguments, **options):
        answers.append(run_probe(*arguments, wrap=release.wrap, **options))
        return answers[-1]

    monkeypatch.setattr(sglang_preflight, "open_session", lambda *_arguments: Gpus())
    monkeypatch.setattr(sglang_preflight, "run_probe", probe)

    def run(case, **more):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        folders = {name: str(tmp_path / name) for name in ("state_dir", "run_dir", "etc_dir", "unit_dir")}
        options = {name: models.get(value, value) for name, value in case.options.items()}
        code, result = run_module(
            sglang_preflight,
            {
                **folders,
                "manager": "process",
                "python": release.python,
                "model_path": models["TARGET"],
                "port": port,
                "parser": "required",
                # A home of its own, whose caches are soon looked through.
                "environment": {"HOME": str(tmp_path), **case.environment},
                "extra_args": [models.get(word, word) for word in case.extra],
                **options,
                **more,
            },
        )
        return code, result, answers

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


def test_every_case_has_its_result():
    assert list(CASES) == list(EXPECTED)


def check_answer(answer, wanted, release):
    """What the release itself makes of it."""
    assert answer.version == release.version
    if isinstance(wanted, str):
        assert answer.status == REFUSED, answer
        assert answer.message.startswith(wanted)
        return
    assert answer.status == ACCEPTED, answer
    # The oldest has no adaptive speculation at all.
    found = {"speculative_adaptive": False, **answer.fields}
    assert tuple(found[field] for field in FIELDS) == wanted


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_dies_or_differs_passes_in_silence(preflight, release, models, name):
    case = CASES[name]
    code, result, answers = preflight(case)
    if name in WRITTEN_AS or not answers:
        check_answer(release.ask(case.argv(models), case.environment), expected(name, release.numbers), release)
    wanted = expected(WRITTEN_AS.get(name, name), release.numbers)
    if answers:
        check_answer(answers[0], wanted, release)
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
    _code, result, _answers = preflight(CASES["3/1/4"])
    assert any("at most 48 requests" in check["message"] for check in result["checks"])


def test_a_host_without_a_gpu_is_refused_unless_a_device_is_named(release, models):
    """Which is why the probe names one; that the host really has one is for other checks to say."""
    bare = release.ask(CASES["no speculation"].argv(models))
    assert bare.assumed_device and bare.fields["device"] == "cuda"
    own = release.ask([*CASES["no speculation"].argv(models), "--device", "cpu"])
    assert not own.assumed_device and own.fields["device"] == "cpu"
