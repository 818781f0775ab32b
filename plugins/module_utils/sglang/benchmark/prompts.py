# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prompts of a benchmark: a file of them, and which of them one point sends.

Drafts are accepted as far as the text is like what people ask for: random tokens give another acceptance than
real prompts, so real prompts are the default.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file

# Far beyond what a benchmark sends (bytes).
MOST_BYTES = 64 << 20
# SGLang's client leaves out what has fewer than two tokens, and a letter may be one.
_SHORTEST = 8  # characters
_LIST_OF_TURNS = ("conversations", "conversation", "messages")


class PromptsError(ValueError):
    """A file of prompts that cannot be used: the message names the option, the file, the line and the remedy."""


@dataclass(frozen=True)
class Prompts:
    """The prompts of a file, in its order; sha256 is of the file's bytes, name its last component."""

    texts: Tuple[str, ...]
    name: str
    sha256: str

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned: everything but the texts."""
        return {"name": self.name, "sha256": self.sha256, "count": len(self.texts)}


def read_prompts(path: str) -> Prompts:
    """Read a file of prompts, one a line.  Raises PromptsError."""
    try:
        data = regular_file.read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise PromptsError("prompts: %s cannot be read: %s." % (path, error.strerror)) from None
    return parse_prompts(data, path)


def parse_prompts(data: bytes, path: str) -> Prompts:
    """The prompts in the content of a file.  Raises PromptsError."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise PromptsError("prompts: %s is not UTF-8 (at byte %d)." % (path, error.start)) from None
    plain = path.endswith(".txt")
    texts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = line.strip() if plain else _prompt_of(bounded_json.loads(line))
        except ValueError as error:
            raise PromptsError(
                'prompts: line %d of %s is no prompt: %s. Each line must be JSON such as {"prompt": "..."}, '
                "or text where the name ends in .txt." % (number, path, error)
            ) from None
        if len(text.strip()) < _SHORTEST:
            raise PromptsError(
                "prompts: line %d of %s has fewer than %d characters, which SGLang's client may leave out: "
                "give a longer prompt." % (number, path, _SHORTEST)
            )
        texts.append(text)
    if not texts:
        raise PromptsError("prompts: %s has no prompt: give at least one line." % path)
    return Prompts(tuple(texts), os.path.basename(path), hashlib.sha256(data).hexdigest())


def _prompt_of(value: Any) -> str:
    """The prompt in one line: a string, {"prompt": ...}, {"text": ...}, or the first turn of a conversation."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("it is a %s" % type(value).__name__)
    for name in ("prompt", "text"):
        if isinstance(value.get(name), str):
            return str(value[name])
    for name in _LIST_OF_TURNS:
        turns = value.get(name)
        if isinstance(turns, list):
            return _first_question(turns)
    raise ValueError("it has none of prompt, text, conversations and messages")


def _first_question(turns: Sequence[Any]) -> str:
    for turn in turns:
        if not isinstance(turn, Mapping) or turn.get("role", turn.get("from")) == "system":
            continue
        text = turn.get("content", turn.get("value"))
        if isinstance(text, str):
            return text
    raise ValueError("its conversation has no turn of text")


def choose(prompts: Prompts, count: int) -> List[str]:
    """The prompts of one point: the first ones of the file, over again where they are too few.

    Those that come again begin with another number, so that the server's prefix cache does not answer for them.
    """
    size = len(prompts.texts)
    return [
        prompts.texts[place % size] if place < size else "%d. %s" % (place // size + 1, prompts.texts[place % size])
        for place in range(count)
    ]


def as_rows(texts: Sequence[str]) -> List[Dict[str, Any]]:
    """As SGLang's client reads them (its dataset "custom"), which wants an answer too and does not send it."""
    return [{"conversations": [{"content": text}, {"content": "an answer"}]} for text in texts]


def prompts_for(concurrency: int, num_prompts: int, per_stream: int, least: int) -> int:
    """How many requests a point sends: num_prompts, or where that is 0 so many for each stream."""
    return num_prompts or max(least, per_stream * concurrency)
