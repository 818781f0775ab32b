# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the releases change what they are asked for: the table was taken from running the real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Dict, List

import pytest
from harness import SIMULATOR, Host
from make_model import make_model

# Runs all cases of one release in one process, as a caller is told to do it: parse, resolve, check.
PROBE = """
import io, json, sys
from contextlib import redirect_stderr
import sglang.srt.server_args as s
for line in sys.stdin:
    try:
        with redirect_stderr(io.StringIO()):
            a = s.prepare_server_args(json.loads(line))
        if hasattr(a, "resolve_once"):
            a.resolve_once(); e = a.resolved_dict()
        else:
            e = vars(a)
        a.check_server_args()
        keys = "algorithm num_steps eagle_topk num_draft_tokens adaptive".split()
        out = [e.get("speculative_" + k) for k in keys] + [e["max_running_requests"], not e["disable_overlap_schedule"]]
    except SystemExit as x:
        out = "exit %s" % x.code
    except Exception as x:
        out = "%s: %s" % (type(x).__name__, x)
    print(json.dumps(out))
"""

E = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "DRAFT"]


def shape(steps: int, topk: int, tokens: int) -> List[str]:
    return [
        *("--speculative-num-steps", str(steps)),
        *("--speculative-eagle-topk", str(topk)),
        *("--speculative-num-draft-tokens", str(tokens)),
    ]


CASES: Dict[str, List[str]] = {
    "no speculation": [],
    "3/1/4": E + shape(3, 1, 4),
    "3/1/8": E + shape(3, 1, 8),
    "3/1/4 with 250": E + shape(3, 1, 4) + ["--max-running-requests", "250"],
    "nothing else": E,
    "5/4/8": E + shape(5, 4, 8),
    "only steps": E + ["--speculative-num-steps", "3"],
    "only topk": E + ["--speculative-eagle-topk", "4"],
    "no draft path": ["--speculative-algorithm", "EAGLE3", *shape(3, 1, 4)],
    "no algorithm": ["--speculative-draft-model-path", "DRAFT", "--speculative-num-steps", "3"],
    "lower case": ["--speculative-algorithm", "eagle3", *shape(3, 1, 4)],
    "NEXTN": ["--speculative-algorithm", "NEXTN", *shape(3, 1, 4)],
    "FOO": ["--speculative-algorithm", "FOO"],
    "adaptive": [*E, "--speculative-adaptive"],
    "adaptive 5/4/8": [*E, "--speculative-adaptive", *shape(5, 4, 8)],
    "adaptive 4/1/5": [*E, "--speculative-adaptive", *shape(4, 1, 5)],
    "NGRAM": ["--speculative-algorithm", "NGRAM"],
    "no overlap": [*E, *shape(3, 1, 4), "--disable-overlap-schedule"],
    "abbreviated": E + ["--speculative-num-step", "3", "--speculative-eagle", "1", "--speculative-num-draft", "4"],
    "unknown option": ["--no-such-option"],
    "colon in the name": ["--served-model-name", "a:b"],
    "no such model": ["--model-path", "/nowhere"],
}

TYPE_ERROR = "TypeError: '>' not supported between instances of 'NoneType' and 'int'"

# algorithm, steps, topk, draft tokens, adaptive, max_running_requests, overlap
EXPECTED: Dict[str, Dict[str, Any]] = {
    "0.5.7": {
        "no speculation": [None, None, None, None, None, None, True],
        "3/1/4": ["EAGLE3", 3, 1, 4, None, 48, False],
        "3/1/8": ["EAGLE3", 3, 1, 4, None, 48, False],
        "3/1/4 with 250": ["EAGLE3", 3, 1, 4, None, 250, False],
        "nothing else": ["EAGLE3", 5, 4, 8, None, 48, False],
        "5/4/8": ["EAGLE3", 5, 4, 8, None, 48, False],
        "only steps": TYPE_ERROR,
        "only topk": "AssertionError: ",
        "no draft path": ["EAGLE3", 3, 1, 4, None, 48, False],
        "no algorithm": [None, 3, None, None, None, None, True],
        "lower case": "exit 2",
        "NEXTN": ["EAGLE", 3, 1, 4, None, 48, False],
        "FOO": "exit 2",
        "adaptive": "exit 2",
        "adaptive 5/4/8": "exit 2",
        "adaptive 4/1/5": "exit 2",
        "NGRAM": ["NGRAM", None, 10, 12, None, 48, False],
        "no overlap": ["EAGLE3", 3, 1, 4, None, 48, False],
    },
    "0.5.12": {
        "no speculation": [None, None, None, None, False, None, True],
        "3/1/4": ["EAGLE3", 3, 1, 4, False, 48, True],
        "3/1/8": ["EAGLE3", 3, 1, 4, False, 48, True],
        "nothing else": ["EAGLE3", 5, 4, 8, False, 48, True],
        "5/4/8": ["EAGLE3", 5, 4, 8, False, 48, False],
        "only steps": TYPE_ERROR,
        "only topk": "AssertionError: ",
        "no algorithm": [None, 3, None, None, False, None, True],
        "lower case": ["EAGLE3", 3, 1, 4, False, 48, True],
        "FOO": "ValueError: Unknown speculative algorithm name: FOO",
        "adaptive": ["EAGLE3", 5, 4, 8, False, 48, True],
        "adaptive 5/4/8": ["EAGLE3", 5, 4, 8, False, 48, False],
        "adaptive 4/1/5": ["EAGLE3", 4, 1, 5, True, 48, True],
        "NGRAM": ["NGRAM", None, 10, 12, False, 48, False],
        "no overlap": ["EAGLE3", 3, 1, 4, False, 48, False],
    },
    "0.5.17": {
        "3/1/8": ["EAGLE3", 3, 1, 4, False, 48, True],
        "adaptive": ["EAGLE3", 3, 1, 4, True, 48, True],
        "adaptive 4/1/5": "ValueError: --speculative-num-steps=4 is not in the adaptive config candidate_steps "
        "[0, 1, 3, 7]. Pass one of those values.",
        "abbreviated": ["EAGLE3", 3, 1, 4, False, 48, True],
        "unknown option": "exit 2",
        "colon in the name": "AssertionError: served_model_name cannot contain a colon (':') character.",
        "no such model": "OSError: /nowhere does not appear to have a file named config.json.",
    },
    "0.5.23": {
        "no speculation": [None, None, None, None, False, None, True],
        "3/1/4": ["EAGLE3", 3, 1, 4, False, 48, True],
        "3/1/8": ["EAGLE3", 3, 1, 4, False, 48, True],
        "nothing else": ["EAGLE3", 5, 4, 8, False, 48, True],
        "5/4/8": ["EAGLE3", 5, 4, 8, False, 48, True],
        "only steps": TYPE_ERROR,
        "only topk": "AssertionError: ",
        "no draft path": ["EAGLE3", 3, 1, 4, False, 48, True],
        "no algorithm": [None, 3, None, None, False, None, True],
        "lower case": ["EAGLE3", 3, 1, 4, False, 48, True],
        "NEXTN": ["EAGLE", 3, 1, 4, False, 48, True],
        "FOO": "ValueError: Unknown speculative algorithm name: FOO",
        "adaptive": ["EAGLE3", 3, 1, 4, True, 48, True],
        "adaptive 5/4/8": ["EAGLE3", 5, 4, 8, False, 48, True],
        "adaptive 4/1/5": "ValueError: --speculative-num-steps=4 is not in the adaptive config candidate_steps "
        "[0, 1, 3, 5, 7]. Pass one of those values.",
        "NGRAM": ["NGRAM", 1, 10, 12, False, 48, True],
        "no overlap": ["EAGLE3", 3, 1, 4, False, 48, False],
    },
}


def probe(host: Host, version: str, cases: List[List[str]], **environment: str) -> List[Any]:
    model, draft = make_model(host.folder / "m"), make_model(host.folder / "d", draft=True)
    lines = []
    for case in cases:
        argv = [str(draft) if word == "DRAFT" else word for word in case]
        if "--model-path" not in argv:
            argv = ["--model-path", str(model), *argv]
        lines.append(json.dumps(argv))
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input="\n".join(lines) + "\n",
        env=dict(host.environment, STANDIN_VERSION=version, **environment),
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("version", EXPECTED)
def test_resolved(host: Host, version: str) -> None:
    expected = EXPECTED[version]
    found = probe(host, version, [CASES[name] for name in expected])
    assert dict(zip(expected, found)) == expected


@pytest.mark.parametrize(
    ("version", "value", "expected"),
    [
        ("0.5.7", "True", ["EAGLE3", 3, 1, 4, None, 48, True]),
        ("0.5.12", "False", ["EAGLE3", 3, 1, 4, False, 48, False]),
        ("0.5.23", "False", ["EAGLE3", 3, 1, 4, False, 48, True]),
    ],
)
def test_worker_by_variable(host: Host, version: str, value: str, expected: List[Any]) -> None:
    assert probe(host, version, [CASES["3/1/4"]], SGLANG_ENABLE_SPEC_V2=value) == [expected]


def test_branching_tree_with_the_second_worker_of_0_5_7(host: Host) -> None:
    (found,) = probe(host, "0.5.7", [CASES["5/4/8"]], SGLANG_ENABLE_SPEC_V2="True")
    assert found == "ValueError: Spec v2 currently only supports topk = 1 for speculative decoding."


def test_no_accelerator(host: Host) -> None:
    host.environment["CUDA_VISIBLE_DEVICES"] = ""
    hidden, named = probe(host, "0.5.17", [[], ["--device", "cuda"]])
    assert hidden.startswith("RuntimeError: No accelerator")
    assert isinstance(named, list)


def test_late_release_resolves_only_when_told(host: Host) -> None:
    model = make_model(host.folder / "m")
    code = (
        "import sglang.srt.server_args as s\n"
        "a = s.prepare_server_args(['--model-path', {!r}, '--speculative-algorithm', 'FOO'])\n"
        "print(a.speculative_algorithm, a.served_model_name)".format(str(model))
    )
    host.environment["STANDIN_VERSION"] = "0.5.23"
    assert host.python(code).split() == ["FOO", "None"]


def test_installed_copy_needs_nothing_of_the_source_tree(host: Host) -> None:
    site = host.folder / "site"
    subprocess.run([sys.executable, str(SIMULATOR / "install.py"), str(site)], check=True)
    host.environment["PYTHONPATH"] = str(site)
    code = "import sglang, fakegpu, sglang.srt.lifecycle; print(sglang.__file__, fakegpu.__file__)"
    assert [path.startswith(str(site)) for path in host.python(code).split()] == [True, True]


def test_install_leaves_another_package_alone(host: Host) -> None:
    (host.folder / "sglang").mkdir()
    command = [sys.executable, str(SIMULATOR / "install.py"), str(host.folder)]
    assert b"is not the stand-in" in subprocess.run(command, check=False, stderr=subprocess.PIPE).stderr
    assert list((host.folder / "sglang").iterdir()) == []
