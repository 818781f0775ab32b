# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How speculation turns out: tokens per verification step, and speed.

Each draft token is right with a fixed probability p, and the first wrong one ends the step, so a step over s draft
tokens yields 1 + p + … + p^s tokens on average. A step takes longer than one without speculation: the draft has to
run, and the target verifies s + 1 positions for each stream, which costs nothing while the GPU has room and a lot
when many streams fill it. That is why speculation wins at one stream and loses under load, here as on hardware.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from sglang.srt.behaviour import Behaviour
from sglang.srt.resolution import adaptive_tiers
from sglang.srt.server_args import ServerArgs
from sglang.version import since


class Speculation:
    """The speculative side of one server."""

    def __init__(self, server_args: ServerArgs, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self.enabled = server_args.speculative_algorithm is not None
        tokens = server_args.speculative_num_draft_tokens or 0
        self.steps = (server_args.speculative_num_steps or max(tokens - 1, 1)) if self.enabled else 0
        self._tiers: Optional[Dict[int, Any]] = None
        if self.enabled and getattr(server_args, "speculative_adaptive", False):
            self._tiers = adaptive_tiers(server_args.speculative_adaptive_config)

    def active_steps(self, running: int) -> int:
        """Draft steps at a number of running requests; adaptive speculation takes fewer of them under load."""
        if not self._tiers:
            return self.steps
        allowed = self._tiers[max((size for size in self._tiers if size <= running), default=min(self._tiers))]
        return max((steps for steps in allowed if steps <= self.steps), default=0)

    def accept_length(self, steps: int) -> float:
        """Average tokens per verification step, the one of the target's own included."""
        if steps == 0:
            return 1.0
        if self._behaviour.accept is not None:
            return min(max(self._behaviour.accept, 1.0), steps + 1.0)
        return sum(self._behaviour.accept_probability**i for i in range(steps + 1))

    def tokens_per_second(self, running: int) -> float:
        """Speed of one of so many streams."""
        steps = self.active_steps(running)
        load = running / self._behaviour.saturation
        relative_time = (1 + steps * self._behaviour.draft_cost + load * (steps + 1)) / (
            1 + 1 / self._behaviour.saturation
        )
        return self._behaviour.tokens_per_second * self.accept_length(steps) / relative_time

    def meta(self, tokens: int, running: int) -> Dict[str, Any]:
        """What a response says of it, under the release's names; nothing without speculation."""
        if not self.enabled:
            return {}
        steps = self.active_steps(running)
        verifications = max(1, round(tokens / self.accept_length(steps)))
        correct = max(0, tokens - verifications)
        proposed = verifications * steps
        meta: Dict[str, Any] = {
            "spec_verify_ct": verifications,
            "spec_accept_length": tokens / verifications,
        }
        if since(12):
            meta["spec_accept_rate"] = correct / proposed if proposed else 0.0
            meta["spec_num_correct_drafts"] = correct
            histogram = self._histogram(verifications, steps)
            meta["spec_accept_histogram"] = histogram
            if since(17):
                meta["spec_num_proposed_drafts"] = proposed
                meta["spec_correct_drafts_histogram"] = histogram
        else:
            # The early releases count the target's own token as accepted, and as drafted.
            meta["spec_accept_token_num"] = tokens
            meta["spec_draft_token_num"] = verifications * (steps + 1)
            meta["spec_accept_rate"] = tokens / (verifications * (steps + 1))
        return meta

    def _histogram(self, verifications: int, steps: int) -> List[int]:
        """How many verifications accepted 0, 1, … steps drafts: as the chance of each says, rounded to whole ones."""
        if self._behaviour.accept is not None and steps:
            chance = (self.accept_length(steps) - 1) / steps
        else:
            chance = self._behaviour.accept_probability
        shares = [chance**count * (1 - chance) for count in range(steps)] + [chance**steps]
        # Rounded on the way, so that the sum is right.
        done, counts = 0.0, []
        for share in shares:
            before, done = round(done * verifications), done + share
            counts.append(round(done * verifications) - before)
        return counts
