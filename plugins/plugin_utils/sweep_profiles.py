# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes profiles of what a sweep has measured: pure, no I/O.

Each configuration that was proven becomes a profile of its name. Besides there are `adaptive`, which SGLang itself
switches by load, and `best`, the configuration for the load that the sweep was told to expect.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import REDACTED
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

FORMAT = 1
ADAPTIVE, BEST = "adaptive", "best"
# The two variables of the file.
PROFILES, MEASURED = "sglang_spec_profiles", "sglang_sweep_measured"

_PROVEN = "proven"
# Settings of a row that stand beside the speculative ones in a profile.
_BESIDE = ("max_running_requests", "mem_fraction_static", "extra_args", "environment")
_LONGEST = 300


def make_profiles(results: Mapping[str, Any]) -> Dict[str, Any]:
    """The content of the file of profiles. results: of a sweep, with its `analysis`."""
    sweep = _mapping(results.get("sweep"))
    rows = [row for row in results.get("configurations") or () if isinstance(row, Mapping)]
    analysis = _mapping(results.get("analysis"))
    proven = [row for row in rows if row.get("state") == _PROVEN]
    profiles: Dict[str, Any] = {}
    left_out: Dict[str, str] = {}
    for row in rows:
        name = str(row.get("name") or "")
        if not name or name in profiles:
            continue  # one configuration on several hosts
        if row.get("state") != _PROVEN:
            left_out[name] = _text(row.get("message")) or "it was not proven (%s)" % _text(row.get("state"))
        elif _has_secret(row):
            left_out[name] = "it has a secret, which the sweep does not keep: define the profile yourself"
        else:
            profiles[name] = profile_of(row)
            left_out.pop(name, None)
    decision = decision_of(analysis)
    if ADAPTIVE not in profiles and ADAPTIVE not in left_out:
        _add_adaptive(profiles, left_out, analysis, proven)
    _add_best(profiles, left_out, decision, sweep)
    return {
        MEASURED: {
            "format": FORMAT,
            "sweep": _text(sweep.get("name")),
            "model_path": _text(sweep.get("model")),
            "draft_model_paths": _drafts(proven),
            "versions": sorted({_text(row.get("version")) for row in proven} - {""}),
            "gpus": sorted({_gpus(row) for row in proven} - {""}),
            "ended": _text(sweep.get("ended")),
            "decision": decision,
            "left_out": left_out,
        },
        PROFILES: profiles,
    }


def profile_of(row: Mapping[str, Any]) -> Dict[str, Any]:
    """The profile that deploys the configuration of a row."""
    settings = dict(_mapping(row.get("settings")))
    speculative = {**_mapping(settings.pop("speculative", None))}
    beside = {name: settings.pop(name) for name in _BESIDE if name in settings}
    # What the row says of itself is what ran.
    for name in ("environment", "max_running_requests", "extra_args"):
        if row.get(name):
            beside[name] = row[name]
    speculative.update(settings)
    if row.get("baseline") is True or str(speculative.get("algorithm") or "none").lower() == "none":
        speculative = {"algorithm": "none"}
    given = {name: value for name, value in speculative.items() if value is not None and value != ""}
    # Under their own key, where also options stand that only one version has.
    return {"speculative": given, **{name: value for name, value in beside.items() if value not in (None, "", {}, [])}}


def decision_of(analysis: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Which configuration from which concurrency on, in their order, by the names of their profiles."""
    names = _names(analysis)
    found = []
    for part in _mapping(analysis.get("decision")).get("ranges") or ():
        if not isinstance(part, Mapping) or not part.get("configuration") or not _is_number(part.get("from")):
            continue
        upper, label = part.get("to"), str(part["configuration"])
        found.append(
            {
                "from": part["from"],
                "to": upper if _is_number(upper) else None,
                "configuration": names.get(label, label),
                "confirmed": part.get("confirmed") is True,
            }
        )
    return sorted(found, key=lambda part: float(part["from"]))


def _names(analysis: Mapping[str, Any]) -> Dict[str, str]:
    """The names of configurations by the labels that the analysis gives them, of which each is one of one host."""
    rows = [row for row in analysis.get("configurations") or () if isinstance(row, Mapping)]
    return {str(row.get("configuration")): str(row["name"]) for row in rows if row.get("name")}


def configuration_for(decision: Sequence[Mapping[str, Any]], concurrency: float) -> Optional[str]:
    """The configuration that the decision has for a number of requests at a time, None where it has none.

    Beyond what was measured, the nearest one counts.
    """
    below = [part for part in decision if float(part["from"]) <= concurrency]
    chosen = below[-1] if below else next(iter(decision), None)
    return None if chosen is None else str(chosen["configuration"])


# -- the two profiles that no configuration is named after


def _add_adaptive(
    profiles: Dict[str, Any], left_out: Dict[str, str], analysis: Mapping[str, Any], proven: Sequence[Mapping[str, Any]]
) -> None:
    """The one that was computed, where none was measured."""
    found = _mapping(analysis.get("adaptive"))
    config, label = found.get("config"), str(found.get("base") or "")
    steps = found["num_steps"] if _is_count(found.get("num_steps")) else 0
    if not isinstance(config, Mapping) or not config or not steps:
        left_out[ADAPTIVE] = _text(found.get("reason")) or "the analysis has computed no adaptive configuration"
        return
    # Its draft model, environment and the rest are those of the configuration that it is made of.
    name = _names(analysis).get(label, label)
    base = next((row for row in proven if row.get("name") == name and not _has_secret(row)), None)
    if base is None:
        left_out[ADAPTIVE] = "the configuration that it is made of (%s) is no profile" % (_text(label) or "not named")
        return
    profile = profile_of(base)
    profile["speculative"].update(
        num_steps=steps,
        eagle_topk=1,
        num_draft_tokens=steps + 1,
        adaptive=True,
        adaptive_config={str(size): entry for size, entry in config.items()},
    )
    if _is_count(found.get("max_running_requests")):
        profile["max_running_requests"] = found["max_running_requests"]
    profiles[ADAPTIVE] = profile


def _add_best(
    profiles: Dict[str, Any], left_out: Dict[str, str], decision: Sequence[Mapping[str, Any]], sweep: Mapping[str, Any]
) -> None:
    if BEST in profiles:
        return
    expected: Any = sweep.get("expected_concurrency")
    name = configuration_for(decision, float(expected)) if _is_number(expected) else None
    if name in profiles:
        profiles[BEST] = profiles[str(name)]
    elif not decision:
        left_out[BEST] = "the analysis could not say which configuration is the best one"
    elif name is not None:
        left_out[BEST] = "the best one, %s, is no profile" % _text(name)
    else:
        left_out[BEST] = (
            "it depends on the load: say how many requests a server has, with sglang_sweep_expected_concurrency"
        )


# -- reading


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _text(value: Any) -> str:
    """What hosts and people wrote, as one line."""
    return "".join([visible(str(value), _LONGEST)]) if value not in (None, "") else ""


def _has_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        # Of a row only what becomes of it: the rest may have been hidden.
        wanted = ("settings", "environment", "extra_args") if "settings" in value else tuple(value)
        return any(_has_secret(value[key]) for key in wanted if key in value)
    if isinstance(value, (list, tuple)):
        return any(_has_secret(item) for item in value)
    return isinstance(value, str) and REDACTED in value


def _drafts(rows: Sequence[Mapping[str, Any]]) -> List[str]:
    found = set()
    for row in rows:
        for name, where in (("settings", "draft_model_path"), ("effective", "speculative_draft_model_path")):
            found.add(_text(_mapping(row.get(name)).get(where)))
    return sorted(found - {""})


def _gpus(row: Mapping[str, Any]) -> str:
    hardware = _mapping(row.get("hardware"))
    return _text(hardware.get("gpu"))
