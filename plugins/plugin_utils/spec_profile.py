# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Named sets of settings ("profiles"), and what they and the variables of the inventory make together.

The profile is the base and the variables fill what it leaves open.  What both give must be the same: a
profile's name in a report would else say something else than what ran.
"""

from __future__ import annotations

import difflib
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    ExtraOption,
    parse_extra_args,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import same_value
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    environment_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculative_options import (
    KNOWN_OPTIONS,
    OWN_OPTIONS,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    REDACTED,
    is_secret_argument,
    is_secret_variable,
    redact_argv,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles import (
    ADAPTIVE,
    BEST,
    configuration_for,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import (
    SweepError,
    SweepProfiles,
    Unfinished,
)

BUILT_IN: Mapping[str, Mapping[str, Any]] = {"baseline": {"algorithm": "none"}, "eagle3": {"algorithm": "EAGLE3"}}

_SPECULATIVE = "speculative"
_ALGORITHM = "algorithm"
_NUMBERS = ("max_running_requests", "mem_fraction_static")
_EXTRA_ARGS = "extra_args"
_ENVIRONMENT = "environment"
_KEYS = (_SPECULATIVE, *_NUMBERS, _EXTRA_ARGS, _ENVIRONMENT)
_SPECULATIVE_KEYS = (*OWN_OPTIONS, *KNOWN_OPTIONS)
# What sglang_preflight is told of a sweep.
_MEASURED = ("sweep", "model_path", "draft_model_paths", "versions")
# How a speculative setting is called elsewhere.
_PREFIXES = ("speculative_", "sglang_spec_")


class ProfileError(ValueError):
    """Settings that cannot be merged; the message names profile, setting, values and remedy."""


def merge_settings(
    settings: Mapping[str, Any],
    profile: Optional[str] = "",
    profiles: Optional[Mapping[str, Any]] = None,
    sweep: Optional[Callable[[], SweepProfiles]] = None,
    concurrency: Any = None,
) -> Dict[str, Any]:
    """The settings of the inventory and those of the chosen profile.  Raises ProfileError.

    Empty strings and null mean "not given", in both.  The result has all keys; `speculative` has only
    what was given.  sweep reads the profiles of a sweep, which count unless `profiles` has the name; concurrency is
    how many requests a server has at a time, for its profile `best`.  What a profile of a sweep was measured with is
    `measured` of the result.
    """
    ours = _normalised("the settings", settings, strict=False)
    name = "" if profile is None else str(profile)
    if not name:
        return {"profile": "", **ours}
    base, measured = named_profile(name, profiles, sweep, concurrency)
    merged: Dict[str, Any] = {"profile": name}
    merged[_SPECULATIVE] = _merge_speculative(name, base[_SPECULATIVE], ours[_SPECULATIVE])
    for key in _NUMBERS:
        merged[key] = _merge_value(name, key, base[key], ours[key])
    off = _is_none(merged[_SPECULATIVE].get(_ALGORITHM))
    merged[_EXTRA_ARGS] = _merge_words(name, base[_EXTRA_ARGS], ours[_EXTRA_ARGS], off)
    merged[_ENVIRONMENT] = _merge_environment(name, base[_ENVIRONMENT], ours[_ENVIRONMENT])
    if measured:
        merged["measured"] = measured
    return merged


# -- choosing


def named_profile(
    name: str,
    profiles: Optional[Mapping[str, Any]] = None,
    sweep: Optional[Callable[[], SweepProfiles]] = None,
    concurrency: Any = None,
) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """A profile with all keys, and what it was measured with, {} where it is of no sweep.  Raises ProfileError."""
    own = _mapping("profiles", profiles)
    if name in own or sweep is None:
        known, found = {**BUILT_IN, **own}, None
    else:
        try:
            found = sweep()
        except SweepError as error:
            # While a sweep runs it deploys these itself.
            if not (isinstance(error, Unfinished) and name in BUILT_IN):
                raise ProfileError(f"sglang_spec_profile is {name!r}. {error}") from None
            found = SweepProfiles("")
        known = {**BUILT_IN, **_for_the_load(found, concurrency), **own}
    if name not in known:
        left_out = _mapping("left_out", found.measured.get("left_out")).get(name) if found is not None else None
        if found is not None and left_out:
            raise ProfileError(
                f"sglang_spec_profile: the sweep in {found.folder} has no profile {name}: {str(left_out).rstrip('.')}. "
                f"Known profiles: {', '.join(sorted(known))}."
            )
        where = (
            " or give the folder of a sweep in sglang_sweep_dir" if found is None and name in (ADAPTIVE, BEST) else ""
        )
        raise ProfileError(
            f"sglang_spec_profile: there is no profile {name!r}{_nearest(name, list(known))} "
            f"Known profiles: {', '.join(sorted(known))}. Give one of these, or define it in sglang_spec_profiles"
            f"{',' + where if where else ''}."
        )
    base = _normalised(f"the profile {name}", _mapping(f"the profile {name}", known[name]), strict=True)
    if found is None or name not in known or known[name] is BUILT_IN.get(name):
        return base, {}
    told = {key: found.measured.get(key) for key in _MEASURED if found.measured.get(key)}
    return base, {"sweep": str(told.pop("sweep", "")) or found.folder, **told}


def _for_the_load(found: SweepProfiles, concurrency: Any) -> Mapping[str, Any]:
    """The profiles of a sweep, with `best` for a number of requests where that is given.  Raises ProfileError."""
    if not _given(concurrency):
        return found.profiles
    try:
        requests = float("nan") if isinstance(concurrency, bool) else float(concurrency)
    except (TypeError, ValueError):
        requests = float("nan")
    if not 0 < requests < float("inf"):
        raise ProfileError(
            f"sglang_sweep_expected_concurrency: {concurrency!r} is no number of requests: give one above 0, or leave "
            "it out."
        )
    best = found.profiles.get(configuration_for(found.measured.get("decision") or (), requests) or "")
    return found.profiles if best is None else {**found.profiles, BEST: best}


# -- reading


def _mapping(what: str, value: Any) -> Mapping[str, Any]:
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise ProfileError(f"{what} must be a dictionary, and it is {value!r}.")
    return value


def _normalised(whose: str, given: Mapping[str, Any], strict: bool) -> Dict[str, Any]:
    """All keys, with the speculative settings in a dictionary of their own.

    strict: whether a key that is unknown here is refused rather than left to SGLang.
    """
    speculative: Dict[str, Any] = {}
    for key, value in given.items():
        if key in _KEYS:
            continue
        if key not in _SPECULATIVE_KEYS:
            raise ProfileError(_unknown_key(whose, str(key), strict))
        speculative[str(key)] = value
    for key, value in _mapping(f"{_SPECULATIVE} in {whose}", given.get(_SPECULATIVE)).items():
        if key in speculative and _given(value) and not _same(value, speculative[key]):
            raise ProfileError(
                f"{key} stands twice in {whose}, as {speculative[key]!r} and {value!r}: remove one of them."
            )
        speculative[str(key)] = value
    words = given.get(_EXTRA_ARGS) or []
    if not isinstance(words, (list, tuple)):
        raise ProfileError(f"{_EXTRA_ARGS} in {whose} must be a list with one word an element, and it is {words!r}.")
    return {
        _SPECULATIVE: {key: value for key, value in speculative.items() if _given(value)},
        **{key: given.get(key) if _given(given.get(key)) else None for key in _NUMBERS},
        _EXTRA_ARGS: [str(word) for word in words],
        _ENVIRONMENT: environment_from(_mapping(f"{_ENVIRONMENT} in {whose}", given.get(_ENVIRONMENT))),
    }


def _unknown_key(whose: str, key: str, strict: bool) -> str:
    known = (*_KEYS, *_SPECULATIVE_KEYS)
    bare = next((key[len(prefix) :] for prefix in _PREFIXES if key.startswith(prefix)), key)
    near = f": write {bare}." if bare != key and bare in known else _nearest(bare, known)
    remedy = " An option that only your SGLang knows goes into speculative, by its own name." if strict else ""
    return f"{whose} has no setting {key!r}{near}{remedy}"


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else "."


def _given(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and not value.strip())


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "none"


# -- merging


def _merge_speculative(profile: str, base: Mapping[str, Any], ours: Mapping[str, Any]) -> Dict[str, Any]:
    if _is_none(base.get(_ALGORITHM)):
        # Nothing contradicts a profile without speculation: sglang_preflight drops the rest and says so.
        return {**base, **ours, _ALGORITHM: "none"}
    merged = dict(base)
    for key, value in ours.items():
        before = base.get(key)
        if key == _ALGORITHM and str(before).upper() == str(value).upper():
            continue
        merged[key] = _merge_value(profile, key, before, value, f"sglang_spec_{key}")
    return merged


def _merge_value(profile: str, key: str, base: Any, ours: Any, variable: str = "") -> Any:
    if base is None:
        return ours
    if ours is None or _same(base, ours):
        return base
    raise ProfileError(_contradiction(profile, key, repr(base), repr(ours), variable or f"sglang_{key}"))


def _contradiction(profile: str, what: str, base: str, ours: str, variable: str) -> str:
    return (
        f"The profile {profile} sets {what} to {base}, and {variable} is {ours}: remove one of them, choose another "
        "profile (sglang_spec_profile), or none of them (an empty sglang_spec_profile)."
    )


def _same(one: Any, other: Any) -> bool:
    # What -e makes of a flag.
    words = {"true": True, "false": False}
    one, other = (words.get(v.lower(), v) if isinstance(v, str) else v for v in (one, other))
    return same_value(one, other)


def _merge_words(profile: str, base: Sequence[str], ours: Sequence[str], off: bool) -> List[str]:
    """One list; an option that both give with the same value stands once."""
    first, stray = parse_extra_args(base)
    second, more = parse_extra_args(ours)
    values: Dict[str, Tuple[str, ...]] = {option.name: option.values for option in first}
    words = list(stray)
    for option in first:
        words += option.words
    for option in second:
        before = values.get(option.name)
        if before is None or (off and option.name.startswith("--speculative-")):
            words += option.words
        elif before != option.values:
            shown = [_shown(option.name, words) for words in (before, option.values)]
            raise ProfileError(
                _contradiction(profile, f"{option.name} in extra_args", shown[0], shown[1], "it in sglang_extra_args")
            )
    # Words that belong to no option are refused later, under their own name.
    return list(more) + words if more else words


def _shown(name: str, values: Sequence[str]) -> str:
    if not values:
        return "a flag without a value"
    if is_secret_argument(name):
        return REDACTED
    return " ".join(redact_argv(ExtraOption(name, tuple(values)).words)[1:])


def _merge_environment(profile: str, base: Mapping[str, str], ours: Mapping[str, str]) -> Dict[str, str]:
    for name in sorted(set(base) & set(ours)):
        if base[name] != ours[name]:
            hidden = is_secret_variable(name)
            shown = [REDACTED if hidden else repr(values[name]) for values in (base, ours)]
            raise ProfileError(
                _contradiction(profile, f"{name} in environment", shown[0], shown[1], "it in sglang_environment")
            )
    return dict(sorted({**base, **ours}.items()))
