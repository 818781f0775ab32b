# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prompts that the role sglang_benchmark brings are those that their program makes."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from unittest import mock

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.prompts import read_prompts

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "roles" / "sglang_benchmark" / "files" / "prompts.jsonl"


def program():
    spec = importlib.util.spec_from_file_location("make_prompts", ROOT / "tests" / "tooling" / "make_prompts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_is_what_the_program_writes(tmp_path):
    with mock.patch.object(sys, "argv", ["make_prompts.py", str(tmp_path / "prompts.jsonl")]):
        program().main()
    assert (tmp_path / "prompts.jsonl").read_bytes() == FILE.read_bytes()


def test_they_are_many_different_ones_of_several_lengths():
    texts = read_prompts(str(FILE)).texts
    assert len(set(texts)) == len(texts) == 200
    lengths = sorted(map(len, texts))
    assert lengths[0] < 80 and lengths[-1] > 2000
    # Kinds take turns, so that a point of few requests has all of them.
    made = program()
    for start in range(0, 200, len(made.KINDS)):
        assert [text in list(kind()) for text, kind in zip(texts[start:], made.KINDS)] == [True] * len(made.KINDS)
