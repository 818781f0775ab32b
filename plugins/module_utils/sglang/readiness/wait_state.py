# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one part of a wait hands to the next, as plain data that travels over the controller.

All times are seconds of the host's boot clock: they go on through a suspension, nobody can set them, and
they mean nothing in another boot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.phases import ALL
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.readiness import Generation, Kept
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.soak import SoakCount, count_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.start_progress import Seen
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.workers import Worker, workers_from
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity

FORMAT = 1
# The first sample, and the one after the soak.
SAMPLES = 2


class StateError(ValueError):
    """Data that no earlier part can have returned; the message names the option and the remedy."""


@dataclass
class WaitState:
    """Everything that one wait knows.

    samples holds the generations of the first sample and of the one after the soak; judged counts how
    many of them were found good; ready_after is in seconds, None before the first generation.
    """

    boot: str
    release: str
    kept: Optional[Kept] = None
    identity: Optional[ProcessIdentity] = None
    seen: Optional[Seen] = None
    workers: Sequence[Worker] = ()
    missing_since: Optional[float] = None
    samples: List[List[Generation]] = field(default_factory=lambda: [[] for _number in range(SAMPLES)])
    judged: int = 0
    soak: SoakCount = field(default_factory=SoakCount)
    nonce: str = ""
    ready_after: Optional[float] = None

    def to_dict(self) -> Dict[str, Any]:
        """As it travels.  Only for a state whose `kept` and `seen` are there."""
        kept, seen = self.kept, self.seen
        if kept is None or seen is None:
            raise StateError("the wait has not begun")
        identity = self.identity
        return {
            "format": FORMAT,
            "boot": self.boot,
            "release": self.release,
            "kept": {
                "began": kept.began,
                "entered": [[entry["name"], entry["at"]] for entry in kept.entered],
                "answers": list(kept.answers),
                "bad": kept.bad,
                "asked": kept.asked,
                "was_up": kept.was_up,
                "pid": kept.pid,
                "restarts": kept.restarts,
            },
            "identity": None if identity is None else [identity.pid, identity.start_time],
            "seen": [seen.end, seen.at],
            "workers": [
                [worker.identity.pid, worker.identity.start_time, worker.name, worker.gone_since]
                for worker in self.workers
            ],
            "missing_since": self.missing_since,
            "samples": [
                [[made.completion_tokens, made.verified, made.seconds] for made in sample] for sample in self.samples
            ],
            "judged": self.judged,
            "soak": self.soak.to_dict(),
            "nonce": self.nonce,
            "ready_after": self.ready_after,
        }


def state_from(data: Mapping[str, Any]) -> WaitState:
    """The reverse of WaitState.to_dict.  Raises StateError."""
    try:
        if data["format"] != FORMAT:
            raise ValueError("its format is %r" % (data["format"],))
        return WaitState(
            boot=str(data["boot"]),
            release=str(data["release"]),
            kept=_kept_from(data["kept"]),
            identity=None if data["identity"] is None else ProcessIdentity(*[int(part) for part in data["identity"]]),
            seen=Seen(str(data["seen"][0]), float(data["seen"][1])),
            workers=workers_from(data["workers"]),
            missing_since=_optional(data["missing_since"]),
            samples=_samples_from(data["samples"]),
            judged=int(data["judged"]),
            soak=count_from(data["soak"]),
            nonce=str(data["nonce"]),
            ready_after=_optional(data["ready_after"]),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise StateError(
            "resume: it is not what an earlier part of the wait has returned (%s: %s): leave it out to wait anew."
            % (type(error).__name__, error)
        ) from None


def _optional(value: Any) -> Optional[float]:
    return None if value is None else float(value)


def _kept_from(data: Mapping[str, Any]) -> Kept:
    entered = [{"name": str(name), "at": float(at)} for name, at in data["entered"]]
    if not entered or any(entry["name"] not in ALL for entry in entered):
        raise ValueError("its phases are not known")
    return Kept(
        began=float(data["began"]),
        entered=entered,
        answers=[str(answer) for answer in data["answers"]],
        bad=int(data["bad"]),
        asked=bool(data["asked"]),
        was_up=bool(data["was_up"]),
        pid=None if data["pid"] is None else int(data["pid"]),
        restarts=int(data["restarts"]),
    )


def _samples_from(data: Sequence[Sequence[Sequence[Any]]]) -> List[List[Generation]]:
    samples = [
        [
            Generation(int(tokens), {"spec_verify_ct": int(verified)}, float(seconds))
            for tokens, verified, seconds in sample
        ]
        for sample in data
    ]
    if len(samples) != SAMPLES:
        raise ValueError("it has %d samples" % len(samples))
    return samples
