# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What versions of SGLang make of the same request, and what a preflight says to each.

The probe's answers are what the parsers of these releases gave for a Llama target and an EAGLE-3 draft.
"""

from __future__ import annotations

import json
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuIdentity, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import parser_probe
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import settings_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    environment_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ProbeResult
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import PROCESS, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.preflight import run_preflight
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import Host, Request
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

OLD, MIDDLE, NEW = "0.5.7", "0.5.12", "0.5.23"
ALL = (OLD, MIDDLE, NEW)
V2 = {"SGLANG_ENABLE_SPEC_V2": "True"}
EAGLE3 = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "DRAFT"}


def numbers(steps, topk, tokens):
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    return dict(zip(names, (steps, topk, tokens)))


def resolved(steps=3, topk=1, tokens=4, overlap=True, mrr=48, algorithm="EAGLE3", **more):
    """What the parser makes of it."""
    fields = dict(numbers(steps, topk, tokens), speculative_algorithm=algorithm, max_running_requests=mrr, **more)
    return dict(fields, disable_overlap_schedule=not overlap)


NO_SPEC = resolved(None, None, None, True, None, None)

# What is asked (environment among it), by which versions, what the parser makes of it (a text: it refuses), and
# what must be said: parts of failures, parts of warnings.
ROWS = [
    pytest.param({"speculative_algorithm": "none"}, ALL, NO_SPEC, [], [], id="no-speculation"),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4)), [OLD], resolved(overlap=False), [], [], id="the-older-worker-by-default"
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), environment=V2), [OLD], resolved(), [], [], id="the-newer-on-request"
    ),
    pytest.param(dict(EAGLE3, **numbers(3, 1, 4)), [MIDDLE, NEW], resolved(), [], [], id="the-newer-worker"),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), environment=V2), [NEW], resolved(), [], ["ignores"], id="an-ignored-variable"
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), environment={"SGLANG_ENABLE_SPEC_V2": "False"}),
        [MIDDLE],
        resolved(),
        ["asks for the older worker"],
        [],
        id="another-worker-than-asked",
    ),
    pytest.param(dict(EAGLE3, **numbers(3, 1, 8)), ALL, resolved(), [], ["becomes 4"], id="rewritten-draft-tokens"),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), max_running_requests=250), ALL, resolved(mrr=250), [], [], id="a-limit-stays"
    ),
    pytest.param(EAGLE3, [MIDDLE, NEW], resolved(5, 4, 8), [], [], id="numbers-of-its-own"),
    pytest.param(
        dict(EAGLE3, **numbers(5, 4, 8), environment=V2),
        [OLD],
        "ValueError: Spec v2 currently only supports topk = 1",
        ["only supports topk = 1"],
        [],
        id="the-newer-worker-refuses-a-tree",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(5, 4, 8)),
        [MIDDLE],
        resolved(5, 4, 8, overlap=False),
        [],
        ["eagle_worker.py, although"],
        id="silently-the-older-worker",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(5, 4, 8), environment=V2),
        [MIDDLE],
        resolved(5, 4, 8, overlap=False),
        ["asks for the newer worker"],
        [],
        id="silently-the-older-worker-although-asked",
    ),
    pytest.param(dict(EAGLE3, **numbers(5, 4, 8)), [NEW], resolved(5, 4, 8), [], [], id="a-tree"),
    pytest.param(dict(EAGLE3, speculative_num_steps=3), ALL, None, ["without speculative_eagle_topk"], [], id="steps"),
    pytest.param(dict(EAGLE3, speculative_eagle_topk=4), ALL, None, ["without speculative_num_steps"], [], id="topk"),
    pytest.param(
        dict(numbers(3, 1, 4), speculative_algorithm="EAGLE3"),
        ALL,
        None,
        ["needs speculative_draft_model_path"],
        [],
        id="no-draft-model",
    ),
    pytest.param(
        {"speculative_draft_model_path": "DRAFT"}, ALL, None, ["without speculative_algorithm"], [], id="no-algorithm"
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), speculative_algorithm="eagle3"),
        [OLD],
        resolved(overlap=False),
        [],
        [],
        id="lower-case",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), speculative_algorithm="NEXTN"),
        ALL,
        resolved(algorithm="EAGLE"),
        [],
        ["from NEXTN to EAGLE"],
        id="nextn",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), speculative_algorithm="FOO"),
        ALL,
        "ValueError: Unknown speculative algorithm name",
        ["Unknown speculative algorithm"],
        ["'FOO' is none of"],
        id="an-unknown-algorithm",
    ),
    pytest.param(
        dict(EAGLE3, speculative_options={"adaptive": True}),
        [OLD],
        "unrecognized arguments: --speculative-adaptive",
        ["came with 0.5.11"],
        [],
        id="adaptive-unknown",
    ),
    pytest.param(
        dict(EAGLE3, speculative_options={"adaptive": True}),
        [MIDDLE],
        resolved(5, 4, 8, speculative_adaptive=False),
        ["would switch speculative_adaptive off"],
        [],
        id="adaptive-silently-off",
    ),
    pytest.param(
        dict(EAGLE3, speculative_options={"adaptive": True}),
        [NEW],
        resolved(speculative_adaptive=True),
        [],
        ["At most 48 requests"],
        id="adaptive",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(5, 4, 8), speculative_options={"adaptive": True}),
        ALL,
        None,
        ["Set it to 1"],
        [],
        id="adaptive-with-a-tree",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(4, 1, 5), speculative_options={"adaptive": True}),
        [NEW],
        "ValueError: speculative_num_steps=4 is not in the adaptive config candidate_steps",
        ["not in the adaptive config"],
        [],
        id="adaptive-with-other-steps",
    ),
    pytest.param(
        {"speculative_algorithm": "NGRAM"},
        [OLD, MIDDLE],
        resolved(None, 10, 12, False, algorithm="NGRAM"),
        [],
        [],
        id="ngram",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), extra_args=["--disable-overlap-schedule"], environment=V2),
        [OLD],
        resolved(overlap=True),
        [],
        ["disable_overlap_schedule from True to False"],
        id="overlap-forced-back-on",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), extra_args=["--weight-cache-mode", "client"]),
        [NEW],
        None,
        ["--weight-cache-mode client"],
        [],
        id="weight-cache",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), extra_args=["--config=/etc/x.yaml"]),
        ALL,
        None,
        ["--config=FILE"],
        [],
        id="ignored-file",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), speculative_options={"draft_model_quantization": "unquant"}),
        ALL[1:],
        resolved(speculative_draft_model_quantization=None),
        [],
        [],
        id="an-unquantized-draft",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), speculative_options={"draft_model_quantization": "unquant"}),
        ALL[1:],
        resolved(speculative_draft_model_quantization="fp8"),
        [],
        ["from unquant to fp8"],
        id="a-draft-that-stays-quantized",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4)),
        ALL[1:],
        resolved(speculative_draft_model_quantization="fp8"),
        [],
        ["inherits fp8"],
        id="an-inherited-quantization",
    ),
    pytest.param(
        dict(EAGLE3, **numbers(3, 1, 4), max_running_requests=250),
        [NEW],
        resolved(mrr=250, cuda_graph_max_bs_decode=160),
        [],
        ["largest CUDA graph is for 160"],
        id="batches-beyond-the-graphs",
    ),
]


@pytest.fixture
def check(tmp_path):
    """Run a preflight with an answer of the parser; returns failures and warnings."""
    for name, config in (
        ("target", {"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 64}),
        ("draft", {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 100, "hidden_size": 64}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        (tmp_path / name / "model.safetensors").write_text("")
        (tmp_path / name / "tokenizer.json").write_text("{}")

    def run(asked, version, answer):
        folders = {name: str(tmp_path / name) for name in ("state_dir", "run_dir", "log_dir", "etc_dir", "unit_dir")}
        paths = InstancePaths("main", **folders)
        params = dict(asked, model_path=str(tmp_path / "target"), port=1024)
        if params.get("speculative_draft_model_path") == "DRAFT":
            params["speculative_draft_model_path"] = str(tmp_path / "draft")
        probes = []

        def probe(_python, argv, *_args, **_options):
            probes.append(argv)
            if isinstance(answer, str):
                return ProbeResult(parser_probe.REFUSED, version, message=answer)
            return ProbeResult(parser_probe.ACCEPTED, version, fields=dict(answer))

        outcome = run_preflight(
            Request(
                settings_from(params, str(paths.current_link)),
                paths,
                PROCESS,
                sys.executable,
                ("-m", "sglang.launch_server"),
                environment=environment_from(params.get("environment", {})),
            ),
            Host(
                procfs=ProcFs(str(tmp_path / "proc")),
                list_gpus=lambda: [GpuReading(0, GpuIdentity(0, "GPU-0", "0000:01:00.0", 0, "NVIDIA H200"))],
                run_command=lambda *_args, **_options: Completed(1),
                probe=probe,
                shared_memory=lambda: 4096,
                session={},
                free_space=lambda _path: 4096,
                now=lambda: 2e9,
                home=lambda _user: str(tmp_path / "home"),
            ),
        )
        assert bool(probes) == (answer is not None), "the parser was asked, or not"
        found = {status: [c.message for c in outcome.checks if c.status == status] for status in ("failed", "warning")}
        return found["failed"], found["warning"], outcome

    return run


@pytest.mark.parametrize(("asked", "versions", "answer", "failed", "warned"), ROWS)
def test_each_row(check, asked, versions, answer, failed, warned):
    for version in versions:
        failures, warnings, _outcome = check(asked, version, answer)
        for expected, found in ((failed, failures), (warned, warnings)):
            assert all(any(part in message for message in found) for part in expected), (version, failures, warnings)
        # Nothing else is said: refused requests may be refused for two reasons, by us and by the parser.
        assert bool(failures) == bool(failed), (version, failures)
        assert failed or len(warnings) == len(warned), (version, warnings)


def test_the_effective_configuration_is_the_parsers(check):
    _failures, _warnings, outcome = check(dict(EAGLE3, **numbers(3, 1, 8)), NEW, resolved())
    assert outcome.facts["effective"]["max_running_requests"] == 48
    assert outcome.facts["adjusted"] == {"speculative_num_draft_tokens": {"requested": 8, "effective": 4}}
