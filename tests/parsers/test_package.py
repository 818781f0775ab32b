# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else the probe finds out about a release: its options, where it is, and which files it has."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

# Options that this collection writes by itself, for every release.
WRITTEN = (
    *("model-path", "served-model-name", "host", "port", "tp-size", "pp-size", "dp-size", "max-running-requests"),
    *("mem-fraction-static", "config", "api-key", "device", "base-gpu-id", "gpu-id-step"),
    *("speculative-algorithm", "speculative-draft-model-path", "speculative-num-steps", "speculative-eagle-topk"),
    *("speculative-num-draft-tokens", "speculative-accept-threshold-single", "speculative-token-map"),
)
# Option, the release that has it first (None: the oldest here), the first that has it no more.
CAME_AND_WENT = [
    ("--speculative-adaptive", (0, 5, 11), None),
    ("--speculative-adaptive-config", (0, 5, 11), None),
    ("--admin-api-key", (0, 5, 8), None),
    ("--speculative-ngram-branch-length", None, (0, 5, 10)),
    ("--speculative-ngram-max-trie-depth", (0, 5, 10), None),
    ("--speculative-dflash-block-size", (0, 5, 11), None),
    ("--speculative-use-rejection-sampling", (0, 5, 14), None),
    ("--weight-cache-mode", (0, 5, 17), None),
    ("--speculative-draft-kv-cache-dtype", (0, 5, 18), None),
    ("--speculative-use-block-verification", (0, 5, 22), None),
    ("--speculative-skip-dp-mlp-sync", (0, 5, 11), (0, 5, 23)),
]
# The two implementations of the worker: the first one was deleted.
WORKERS = {"sglang/srt/speculative/eagle_worker.py": (0, 5, 13), "sglang/srt/speculative/eagle_worker_v2.py": None}


@pytest.fixture(scope="module")
def answer(release, models):
    """One answer for all tests here."""
    return release.ask(["--model-path", models["TARGET"]], targets=[*WORKERS, "sglang/srt/no_such_file.py"])


def test_all_options_are_known(answer):
    assert {"--" + name for name in WRITTEN} <= set(answer.options)
    assert len(answer.options) > 300
    assert all(option.startswith("-") for option in answer.options)


@pytest.mark.parametrize(("option", "since", "until"), CAME_AND_WENT, ids=str)
def test_options_that_came_and_went(answer, release, option, since, until):
    there = (since is None or release.numbers >= since) and (until is None or release.numbers < until)
    assert (option in answer.options) == there


def test_options_are_known_where_the_arguments_are_refused(answer, release, models):
    refused = release.ask(["--model-path", models["TARGET"], "--no-such-option"])
    assert refused.options == answer.options


def test_every_option_that_the_parser_takes_is_among_them(answer, release, models):
    """A beginning of an option is taken too, and can be told from an option."""
    word = "--speculative-num-draft"
    result = release.ask(["--model-path", models["TARGET"], word, "4"])
    assert result.fields["speculative_num_draft_tokens"] == 4
    assert word not in answer.options
    assert [option for option in answer.options if option.startswith(word)] == ["--speculative-num-draft-tokens"]


def test_the_package_and_its_files(answer, release):
    package = Path(answer.package)
    assert package.name == "sglang" and (package / "srt" / "server_args.py").is_file()
    assert Path(release.python).parents[1] in package.parents
    for target, deleted in WORKERS.items():
        path = package.parent / target
        found = answer.files[target]
        assert (found.path, found.problem) == (str(path), "")
        there = deleted is None or release.numbers < deleted
        assert found.sha256 == (hashlib.sha256(path.read_bytes()).hexdigest() if there else "")
    assert answer.files["sglang/srt/no_such_file.py"].sha256 == ""
