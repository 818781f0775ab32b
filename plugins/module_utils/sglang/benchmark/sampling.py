# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Acceptance by requests of our own, where the answers that the client got could not be listened to.

The same prompts at the same concurrency, after the measurement: the load, and with it adaptive speculation, is alike.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Protocol, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.results import whole
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, HttpError

_LEAST = 8
_MOST_THREADS = 256


class Client(Protocol):
    """What is needed of a client (see http_client.HttpClient)."""

    def post(self, path: str, payload: Mapping[str, Any], timeout: float) -> Answer:
        """Raises HttpError."""


@dataclass(frozen=True)
class Sample:
    """answered: requests with an answer; tokens and steps: over all of them."""

    answered: int = 0
    tokens: int = 0
    steps: int = 0

    @property
    def accept_length(self) -> Optional[float]:
        """Tokens per verification, None where there was none."""
        return round(self.tokens / self.steps, 4) if self.steps else None


def take_sample(client: Client, texts: Sequence[str], concurrency: int, output_len: int, timeout: float) -> Sample:
    """Send some prompts, so many at a time; timeout is in seconds for each."""
    left = list(texts[: max(_LEAST, concurrency)])
    found: List[Tuple[int, int]] = []
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not left:
                    return
                text = left.pop(0)
            counts = _ask(client, text, output_len, timeout)
            if counts is not None:
                with lock:
                    found.append(counts)

    threads = [
        threading.Thread(target=work, daemon=True) for _number in range(min(concurrency, len(left), _MOST_THREADS))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Sample(len(found), sum(tokens for tokens, _steps in found), sum(steps for _tokens, steps in found))


def _ask(client: Client, text: str, output_len: int, timeout: float) -> Optional[Tuple[int, int]]:
    parameters = {"max_new_tokens": output_len, "temperature": 0.0, "ignore_eos": True}
    try:
        answer = client.post("/generate", {"text": text, "sampling_params": parameters}, timeout)
        meta = answer.json_object().get("meta_info") if answer.status == 200 else None
    except HttpError:
        return None
    if not isinstance(meta, Mapping):
        return None
    return whole(meta.get("completion_tokens")), whole(meta.get("spec_verify_ct"))
