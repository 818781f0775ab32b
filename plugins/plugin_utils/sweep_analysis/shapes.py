# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of what the analysis of a sweep returns.  All of it can be written as JSON.

Throughput is that of output tokens, in tok/s.  A ratio is the throughput of a configuration divided by that of what
it is compared with: above 1 it is faster.  An interval is [low, high], or None where nothing can be said.  A
concurrency is a number of requests that are kept open at a time.  A name of a configuration is the label that
"configurations" gives it: its own name, with the host where several hosts have one of that name.
"""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict

FASTER = "faster"
SLOWER = "slower"
NO_DIFFERENCE = "no_difference"
UNKNOWN = "unknown"

Interval = Optional[List[float]]


class Row(TypedDict):
    """A configuration, in the order of the results."""

    configuration: str  # the label that stands everywhere else
    name: str
    key: str
    host: str
    baseline: bool
    reference: Optional[str]  # the label of the baseline that it is compared with
    adaptive: bool
    num_steps: Optional[int]  # 0 without speculation
    eagle_topk: Optional[int]
    state: str  # "measured", "partly" (some points failed), "failed" (it has no point), "pending"
    reason: str  # why it has no point, or not all


class Outlier(TypedDict):
    """A repeat far from the others of its point.  It is shown, and stays in the data."""

    repeat: int  # from 1
    throughput: float
    message: str


class PointSummary(TypedDict):
    """A point that counts."""

    configuration: str
    host: str
    concurrency: int  # asked for
    reached: Optional[float]  # on average
    counts_as: float  # the concurrency that it counts at: what was asked for, or reached where that is below 90 %
    repeats: int  # that count
    throughput: float  # the median of the repeats, tok/s
    interval: Interval  # 95 % for this point alone: for error bars
    outliers: List[Outlier]
    warnings: List[str]


class Excluded(TypedDict):
    """A point, or one repeat of it, that does not count."""

    configuration: str
    host: str
    concurrency: Optional[int]  # None: the whole configuration
    repeat: Optional[int]  # None: the whole point
    reason: str  # a code
    message: str


class Condition(TypedDict):
    """Something that is not the same for all configurations, or not as a comparison needs it."""

    what: str  # a code, such as "max_running_requests"
    values: Dict[str, List[str]]  # each value, as text: the configurations that have it
    message: str


class Speedup(TypedDict):
    """A configuration against the baseline at one concurrency."""

    configuration: str
    host: str
    baseline: str
    concurrency: int
    counts_as: float
    throughput: Optional[float]  # tok/s
    baseline_throughput: Optional[float]  # tok/s
    ratio: Optional[float]
    interval: Interval  # 95 % for all comparisons of the sweep at once
    verdict: str  # "faster", "slower", "no_difference", "unknown"
    reason: str


class Crossing(TypedDict):
    """A change from faster to slower, or back."""

    to: str  # "slower" or "faster": what it is above the crossing
    between: List[Optional[float]]  # the two measured concurrencies that it lies between
    estimate: Optional[float]
    interval: Interval


class Crossover(TypedDict):
    """Where a configuration and the baseline are equally fast.

    between, estimate and interval are those of the first crossing.  Where there is none, between has what is known:
    [64, None] is above 64, if anywhere; [None, 1] is below 1, if anywhere.
    """

    configuration: str
    host: str
    # "crosses"; "below_lowest": slower already at the lowest concurrency; "above_highest": faster still at the highest;
    # "never_faster": slower from some concurrency on, and no difference below; "fades": faster up to some concurrency,
    # and no difference above; "no_difference": anywhere; "unknown"
    state: str
    between: List[Optional[float]]
    estimate: Optional[float]
    interval: Interval
    crossings: List[Crossing]
    reason: str


class DraftFit(TypedDict):
    """The chance that one drafted token is accepted, of all configurations with the same draft."""

    draft: str  # the path of the draft model, "" where it is unknown
    algorithm: str
    p: Optional[float]
    interval: Interval
    configurations: List[str]
    reason: str


class Acceptance(TypedDict):
    """Tokens per verify step, measured and expected."""

    configuration: str
    host: str
    applies: bool  # whether 1 + p + p^2 + ... + p^n is the expectation
    num_steps: Optional[int]
    measured: Optional[float]  # tokens per verify step, the median over its points
    interval: Interval  # of the measured value
    p: Optional[float]  # of the draft
    expected: Optional[float]  # 1 + p + p^2 + ... + p^n
    difference: Optional[float]  # measured - expected
    by_position: List[float]  # chance that the 1st, 2nd ... drafted token is accepted once those before it are; or []
    source: str  # "requests", "sample", "server", "" or "mixed"
    verdict: str  # "as_expected", "below", "above", "nothing_accepted", "unknown", "does_not_apply"
    reason: str


class AcceptanceReport(TypedDict):
    drafts: List[DraftFit]
    configurations: List[Acceptance]


class Gain(TypedDict):
    """What more steps bring at one concurrency."""

    concurrency: int
    from_steps: int  # 0: the baseline
    to_steps: int
    from_configuration: str
    to_configuration: str
    gain: Optional[float]  # ratio of the throughputs
    per_step: Optional[float]  # the same for each single step, where several lie between
    interval: Interval  # of gain
    verdict: str
    reason: str


class Pays(TypedDict):
    """The number of steps after which more of them do not pay."""

    concurrency: int
    steps: Optional[int]  # the fewest that are as fast as the fastest; 0: no speculation; None: not known
    reason: str


class Marginal(TypedDict):
    """Configurations that differ in their number of steps alone."""

    group: str  # what they have in common, for a heading
    configurations: List[str]  # from the fewest steps on
    gains: List[Gain]
    pays: List[Pays]


# "from" is a keyword, so this one has no class.
Range = TypedDict(
    "Range",
    {
        "from": int,  # the first concurrency of the range
        "to": int,  # its last one
        "configuration": str,
        "host": str,
        "num_steps": Optional[int],
        "measured": List[int],  # the measured concurrencies in it
        "boundary": Optional[float],  # where it and the one before are equally fast, None where that is not known
        "ratio": Optional[float],  # the smallest speedup in it
        "confirmed": bool,  # False: it stands for want of proof, not because it is shown to be the best
        "reason": str,
    },
)


class Best(TypedDict):
    """The configuration for one concurrency."""

    concurrency: int
    configuration: Optional[str]
    host: str
    confirmed: bool
    measured: bool  # False: the concurrency lies outside what was measured
    reason: str


class Decision(TypedDict):
    """Which configuration for which concurrency."""

    ranges: List[Range]  # contiguous, from the lowest concurrency on; [] where nothing was measured
    best: Optional[Best]  # for the sweep's "expected_concurrency", None where it names none
    reason: str


class AdaptiveConfig(TypedDict):
    """What --speculative-adaptive-config should hold."""

    config: Optional[Dict[str, Dict[str, List[int]]]]  # the file's content: batch sizes and candidate steps
    num_steps: Optional[int]  # --speculative-num-steps to start with
    eagle_topk: Optional[int]  # 1
    num_draft_tokens: Optional[int]
    max_running_requests: Optional[int]  # what it needs to be set to, so that all batch sizes can occur
    configurations: List[str]  # those that it is computed from
    base: Optional[str]  # the configuration whose other settings (draft, environment) it goes with
    reason: str


class HostPair(TypedDict):
    """The baselines of two hosts at one concurrency."""

    hosts: List[str]
    concurrency: int
    ratio: Optional[float]  # first by second
    interval: Interval
    verdict: str


class Hosts(TypedDict):
    """Whether hosts that share a sweep are alike."""

    names: List[str]
    without_baseline: List[str]
    alike: Optional[bool]  # None: not known, or only one host
    pairs: List[HostPair]
    message: str


class Method(TypedDict):
    """The numbers behind the words."""

    confidence: float
    comparisons: int  # for which the intervals hold at once
    noise: Optional[float]  # relative standard deviation of a repeat, over all points
    degrees_of_freedom: int
    critical: Optional[float]  # Student's t of the comparisons' intervals
    threshold: float  # smaller differences are none: 0.03 is 3 %
    message: str


class Analysis(TypedDict):
    """What analyse returns."""

    format: int
    method: Method
    configurations: List[Row]
    points: List[PointSummary]
    excluded: List[Excluded]
    conditions: List[Condition]
    hosts: Hosts
    speedups: List[Speedup]
    crossovers: List[Crossover]
    acceptance: AcceptanceReport
    marginal: List[Marginal]
    decision: Decision
    adaptive: AdaptiveConfig
    summary: List[str]  # what matters most, a sentence each, for the top of a report
