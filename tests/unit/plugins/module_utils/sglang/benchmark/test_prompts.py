# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.prompts import (
    PromptsError,
    as_rows,
    choose,
    parse_prompts,
    prompts_for,
    read_prompts,
)


def parse(text, path="/srv/p.jsonl"):
    return parse_prompts(text.encode(), path).texts


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('"Tell me a story"', "Tell me a story"),
        ('{"prompt": "Tell me a story", "text": "another"}', "Tell me a story"),
        ('{"text": "Tell me a story"}', "Tell me a story"),
        ('{"conversations": [{"from": "human", "value": "Tell me a story"}, {"value": "No."}]}', "Tell me a story"),
        ('{"conversation": [{"content": "Tell me a story"}]}', "Tell me a story"),
        (
            '{"messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Tell me a story"}]}',
            "Tell me a story",
        ),
        ('{"prompt": "zwei\\nZeilen \\u00fc"}', "zwei\nZeilen ü"),
    ],
)
def test_forms_of_a_line(line, text):
    assert parse("\n" + line + "\n\n") == (text,)


def test_a_text_file_has_a_prompt_in_each_line():
    assert parse("Tell me a story\n\n  [1, 2] is a list? \n", "/srv/p.txt") == ("Tell me a story", "[1, 2] is a list?")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no prompt"),
        ("\n \n", "has no prompt"),
        ("Tell me a story\n", "line 1 of /srv/p.jsonl is no prompt"),
        ('"Tell me a story"\n17\n', "line 2 of /srv/p.jsonl is no prompt: it is a int"),
        ("[]\n", "it is a list"),
        ('{"question": "Tell me"}\n', "none of prompt, text, conversations and messages"),
        ('{"messages": []}\n', "no turn of text"),
        ('{"messages": [{"role": "system", "content": "Be kind, always"}]}\n', "no turn of text"),
        ('{"messages": [{"role": "user", "content": [{"type": "image"}]}]}\n', "no turn of text"),
        ('"Hi"\n', "fewer than 8 characters"),
        ("[" * 100 + "\n", "is no prompt"),
    ],
)
def test_what_is_no_file_of_prompts(text, words):
    with pytest.raises(PromptsError, match=r"^prompts: ") as error:
        parse(text)
    assert words in str(error.value)


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(PromptsError, match=r"prompts: .*/none cannot be read: No such file"):
        read_prompts(str(tmp_path / "none"))
    with pytest.raises(PromptsError, match="Is a directory"):
        read_prompts(str(tmp_path))
    with pytest.raises(PromptsError, match=r"not UTF-8 \(at byte 1\)"):
        parse_prompts(b'"\xff"', "p")


def test_what_is_told_of_a_file(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('"Tell me a story"\n"Tell me another"\n')
    told = read_prompts(str(file)).to_dict()
    assert (told["name"], told["count"]) == ("p.jsonl", 2) and len(told["sha256"]) == 64
    assert set(told) == {"name", "sha256", "count"}


def test_the_first_ones_are_taken_and_over_again_with_another_beginning():
    prompts = parse_prompts(b'"Tell me a story"\n"Tell me another"\n', "p")
    assert choose(prompts, 1) == ["Tell me a story"]
    chosen = choose(prompts, 5)
    assert chosen == [
        *prompts.texts,
        "2. Tell me a story",
        "2. Tell me another",
        "3. Tell me a story",
    ]
    assert len(set(chosen)) == 5


def test_rows_are_those_of_the_client():
    (row,) = as_rows(["Tell me a story"])
    question, answer = row["conversations"]
    assert question == {"content": "Tell me a story"} and answer["content"]
    assert json.loads(json.dumps(row)) == row


@pytest.mark.parametrize(
    ("concurrency", "num_prompts", "count"), [(1, 0, 12), (3, 0, 12), (4, 0, 16), (250, 0, 1000), (8, 9, 9)]
)
def test_how_many(concurrency, num_prompts, count):
    assert prompts_for(concurrency, num_prompts, 4, 12) == count
