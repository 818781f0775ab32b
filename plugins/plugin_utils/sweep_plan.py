# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the configurations of a sweep out of lists of settings, and refuses what cannot be compared: pure, no I/O."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    environment_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    REDACTED,
    is_secret_variable,
    redact_argv,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import (
    BUILT_IN,
    ProfileError,
    merge_settings,
)

BASELINE = "baseline"
ADAPTIVE = "adaptive"
DEFAULT_ALGORITHM = "EAGLE3"
DEFAULT_CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 250)
# The versions from here on can switch speculation off by batch size.
ADAPTIVE_SINCE = (0, 5, 14)
NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")
# What stands in the settings of a row beside the speculative ones.
BESIDE = ("max_running_requests", "mem_fraction_static")

# Names become parts of file names, of lines and of a report.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOTHING = "Nothing was touched."


class SweepError(ValueError):
    """A sweep that cannot be; the message names the option, its value and the remedy."""


@dataclass(frozen=True)
class Configuration:
    """One configuration of a sweep.

    profile, speculative and environment_name: what it is deployed with.  settings, environment, extra_args and
    max_running_requests: what that means, merged and without secrets; of the environment what differs from the
    inventory's.  host: the one that it belongs to, "" for any.
    """

    name: str
    key: str = ""
    baseline: bool = False
    adaptive: bool = False
    host: str = ""
    profile: str = ""
    environment_name: str = ""
    speculative: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    extra_args: Tuple[str, ...] = ()
    max_running_requests: Optional[int] = None

    def as_row(self) -> Dict[str, Any]:
        """It as plain values for a file."""
        return {**asdict(self), "extra_args": list(self.extra_args)}


# -- the matrix


def expand(options: Mapping[str, Any], base: Mapping[str, Any], profiles: Mapping[str, Any]) -> List[Configuration]:
    """All configurations but the adaptive one, the baseline first.  Raises SweepError.

    options: `profiles`, `num_steps`, `eagle_topk`, `num_draft_tokens` (lists), `environments` (by name) and `baseline`.
    base: the settings of the inventory, `speculative`, `environment`, `extra_args`, `max_running_requests`,
    `mem_fraction_static` and `profile`.  profiles: those of the inventory, by name.
    """
    swept = {name: _numbers(f"sglang_sweep_{name}", options.get(name)) for name in NUMBERS}
    environments = _environments(options.get("environments"))
    known = {**BUILT_IN, **(profiles or {})}
    found: List[Configuration] = []
    if options.get("baseline", True):
        found.append(_finished(Configuration(BASELINE, baseline=True, profile=BASELINE), base, known, environments))
    for profile in _profiles(options.get("profiles"), base, known):
        if _is_off(_speculative_of(known.get(profile, {})).get("algorithm")):
            if not (profile == BASELINE and found):
                found.append(
                    _finished(Configuration(profile, baseline=True, profile=profile), base, known, environments)
                )
            continue
        for numbers, name in itertools.product(_combinations(profile, swept, base, known), ["", *sorted(environments)]):
            found.append(_speculating(profile, numbers, name, swept, base, known, environments))
    _refuse_duplicates(found)
    _refuse_unused_tokens(swept, found)
    if not any(not item.baseline for item in found):
        raise SweepError(
            "The sweep has nothing to compare: give sglang_sweep_num_steps, such as [1, 3, 5], or "
            f"sglang_sweep_profiles, or sglang_sweep_environments. {_NOTHING}"
        )
    return found


def adaptive_configuration(
    model_row: Mapping[str, Any], config: Mapping[str, Any], num_steps: int, profiles: Mapping[str, Any]
) -> Configuration:
    """The configuration that switches by load.  Raises SweepError.

    model_row: the row of a fixed configuration, from which it takes everything but the numbers.  config: the content of
    SGLang's file.  num_steps: the steps that it starts with, one of those in config.
    """
    profile = str(model_row.get("profile") or "")
    base = _mapping(profiles.get(profile))
    if set(_speculative_of(base)) & set(NUMBERS):
        if base.get("extra_args") or base.get("environment"):
            raise SweepError(
                f"The profile {profile} has numbers of its own beside extra_args or environment, so no adaptive "
                "configuration can be made of it. Take the numbers out of the profile, and give "
                "sglang_sweep_num_steps."
            )
        profile = ""
    source = model_row.get("speculative") if profile else model_row.get("settings")
    speculative = {
        **{name: value for name, value in _mapping(source).items() if name not in (*NUMBERS, *BESIDE)},
        "adaptive": True,
        "adaptive_config": dict(config),
        "num_steps": num_steps,
        "eagle_topk": 1,
        "num_draft_tokens": num_steps + 1,
    }
    settings = {**_mapping(model_row.get("settings")), **speculative}
    item = Configuration(
        ADAPTIVE,
        adaptive=True,
        profile=profile,
        environment_name=str(model_row.get("environment_name") or ""),
        speculative=speculative,
        settings=settings,
        environment=dict(_mapping(model_row.get("environment"))),
        extra_args=tuple(model_row.get("extra_args") or ()),
        max_running_requests=model_row.get("max_running_requests"),
    )
    return _with_key(item)


def on_hosts(configurations: Sequence[Configuration], hosts: Sequence[str]) -> List[Configuration]:
    """The same, with the baselines once for each host: only so can hosts be compared with each other."""
    baselines = [
        _with_key(Configuration(**{**item.__dict__, "host": host}))
        for host in hosts
        for item in configurations
        if item.baseline
    ]
    return [*baselines, *(item for item in configurations if not item.baseline)]


def _combinations(
    profile: str, swept: Mapping[str, Sequence[int]], base: Mapping[str, Any], known: Mapping[str, Any]
) -> List[Dict[str, Optional[int]]]:
    """The numbers of a profile's configurations, in the order steps, top-k, draft tokens."""
    own = _speculative_of(known.get(profile, {}))
    inventory = _inventory(base, own)
    for name, wanted in swept.items():
        if wanted and _given(own.get(name)):
            raise SweepError(
                f"sglang_sweep_{name} is {list(wanted)}, and the profile {profile} sets {name} to {own[name]}: take it "
                f"out of one of them. {_NOTHING}"
            )

    def values(name: str) -> List[Optional[int]]:
        if swept[name]:
            return list(swept[name])
        value = own.get(name) if _given(own.get(name)) else inventory.get(name)
        return [_whole(f"{name} of the inventory", value) if _given(value) else None]

    # Numbers of the profile alone are the profile's business; what the inventory has of a swept set is its default.
    found = []
    for steps, topk in itertools.product(values("num_steps"), values("eagle_topk")):
        for tokens in [steps + 1] if steps is not None and topk == 1 else values("num_draft_tokens"):
            numbers = {"num_steps": steps, "eagle_topk": topk, "num_draft_tokens": tokens}
            _refuse_numbers(profile, numbers, own)
            found.append(numbers)
    return found


def _inventory(base: Mapping[str, Any], own: Mapping[str, Any]) -> Dict[str, Any]:
    """The speculative settings of the inventory that go with a profile: none, where it has another algorithm."""
    given = {name: value for name, value in _mapping(base.get("speculative")).items() if _given(value)}
    # An inventory whose server does not speculate at the moment: the sweep's do.
    if _is_off(given.get("algorithm")):
        del given["algorithm"]
    algorithm = str(own.get("algorithm") or "").upper()
    if algorithm and algorithm != str(given.get("algorithm") or DEFAULT_ALGORITHM).upper():
        return {}
    return given


def _refuse_numbers(profile: str, numbers: Mapping[str, Optional[int]], own: Mapping[str, Any]) -> None:
    missing = [name for name, value in numbers.items() if value is None]
    algorithm = str(own.get("algorithm") or DEFAULT_ALGORITHM).upper()
    if missing and len(missing) < len(numbers) and algorithm.startswith("EAGLE"):
        given = ", ".join(f"{name} {value}" for name, value in numbers.items() if value is not None)
        where = f" for the profile {profile}" if profile else ""
        raise SweepError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not given beside {given}{where}: give "
            f"{' and '.join(f'sglang_sweep_{name}' for name in missing)}, or sglang_spec_* of the same name. {_NOTHING}"
        )
    steps, topk, tokens = (numbers[name] for name in NUMBERS)
    if steps is None or topk is None or tokens is None or topk < 2:
        return
    # The first step has topk candidates, each later one as many for each of topk; the token before them counts too.
    most = topk + (steps - 1) * topk * topk + 1
    if tokens > most:
        raise SweepError(
            f"num_draft_tokens {tokens} with num_steps {steps} and eagle_topk {topk}: their tree has {most}. Take "
            f"{tokens} out of sglang_sweep_num_draft_tokens, or make two sweeps in the same folder. {_NOTHING}"
        )


def _speculating(
    profile: str,
    numbers: Mapping[str, Optional[int]],
    environment: str,
    swept: Mapping[str, Sequence[int]],
    base: Mapping[str, Any],
    known: Mapping[str, Any],
    environments: Mapping[str, Mapping[str, str]],
) -> Configuration:
    own = _speculative_of(known.get(profile, {}))
    inventory = {name: value for name, value in _inventory(base, own).items() if name not in NUMBERS}
    if not _given(own.get("algorithm")):
        inventory.setdefault("algorithm", DEFAULT_ALGORITHM)
    mine = {name: value for name, value in numbers.items() if value is not None and not _given(own.get(name))}
    parts = [profile or str(inventory["algorithm"]).lower()]
    # What the profile gives is in its name already.
    if "num_steps" in mine:
        parts.append(f"steps{mine['num_steps']}")
    topk = mine.get("eagle_topk")
    if topk is not None and (topk > 1 or len(swept["eagle_topk"]) > 1):
        parts.append(f"topk{topk}")
    if "num_draft_tokens" in mine and numbers["eagle_topk"] != 1:
        parts.append(f"tokens{mine['num_draft_tokens']}")
    if environment:
        parts.append(environment)
    item = Configuration(
        "-".join(parts), profile=profile, environment_name=environment, speculative={**inventory, **mine}
    )
    return _finished(item, base, known, environments)


def _finished(
    item: Configuration,
    base: Mapping[str, Any],
    known: Mapping[str, Any],
    environments: Mapping[str, Mapping[str, str]],
) -> Configuration:
    """With what the settings of the inventory, the profile and the environment make together, and its key."""
    inventory = environment_from(_mapping(base.get("environment")))
    settings = {
        "speculative": dict(item.speculative),
        "environment": {**inventory, **environments.get(item.environment_name, {})},
        **{name: base.get(name) for name in ("max_running_requests", "mem_fraction_static", "extra_args")},
    }
    try:
        merged = merge_settings(settings, item.profile, known)
    except ProfileError as error:
        raise SweepError(f"The configuration {item.name}: {error} {_NOTHING}") from error
    most = merged["max_running_requests"]
    speculative = merged["speculative"]
    told = {"algorithm": "none"} if _is_off(speculative.get("algorithm")) else dict(speculative)
    # That it was asked for is what tells a limit of 48 from SGLang's own.
    told.update({name: merged[name] for name in BESIDE if merged[name] is not None})
    return _with_key(
        Configuration(
            **{
                **item.__dict__,
                "settings": told,
                "environment": without_secrets(_beyond(inventory, merged["environment"])),
                "extra_args": tuple(redact_argv(merged["extra_args"])),
                "max_running_requests": None if most is None else _whole("sglang_max_running_requests", most),
            }
        )
    )


def _with_key(item: Configuration) -> Configuration:
    """With a short hash of all that makes it another configuration; a name may change, what ran does not."""
    told = item.as_row()
    for name in ("name", "key", "profile", "speculative", "environment_name"):
        del told[name]
    text = json.dumps(told, sort_keys=True, default=str)
    return Configuration(**{**item.__dict__, "key": hashlib.sha256(text.encode()).hexdigest()[:12]})


def _beyond(inventory: Mapping[str, str], environment: Mapping[str, str]) -> Dict[str, str]:
    return {name: value for name, value in environment.items() if inventory.get(name) != value}


def without_secrets(environment: Mapping[str, str]) -> Dict[str, str]:
    """An environment as it may be stored."""
    return {name: REDACTED if is_secret_variable(name) else value for name, value in sorted(environment.items())}


# -- conditions


def concurrencies(given: Any, max_running_requests: Optional[int]) -> List[int]:
    """The concurrencies to measure, rising.  Raises SweepError.

    Without a list of their own the usual ones, up to what the server runs at a time: above it, the queue is measured.
    """
    asked = _numbers("sglang_sweep_concurrencies", given)
    if asked:
        return sorted(asked)
    if max_running_requests is None:
        return list(DEFAULT_CONCURRENCIES)
    usual = [number for number in DEFAULT_CONCURRENCIES if number <= max_running_requests]
    return usual if usual and usual[-1] == max_running_requests else sorted({*usual, max_running_requests})


def common_limit(configurations: Sequence[Configuration]) -> int:
    """The max_running_requests of all configurations.  Raises SweepError where it is not one."""
    limits: Dict[Optional[int], List[str]] = {}
    for item in configurations:
        limits.setdefault(item.max_running_requests, []).append(item.name)
    if None in limits:
        raise SweepError(
            f"sglang_max_running_requests is not given for {_few(limits[None])}: SGLang takes 48 when it speculates "
            "and more when it does not, and what is compared would not be speculation. Set it, to the largest "
            f"concurrency of the sweep or more. {_NOTHING}"
        )
    if len(limits) > 1:
        told = "; ".join(f"{limit} for {_few(names)}" for limit, names in limits.items())
        raise SweepError(
            f"max_running_requests is not the same for all configurations: {told}. Take it out of the profiles, and "
            f"set sglang_max_running_requests. {_NOTHING}"
        )
    return int(next(limit for limit in limits if limit is not None))


def differences(hosts: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """In what the hosts of a sweep are not alike, a sentence for each; what each of them is, by name."""
    found = []
    labels = dict.fromkeys(label for values in hosts.values() for label in values)
    for label in labels:
        kinds: Dict[str, List[str]] = {}
        for host, values in hosts.items():
            kinds.setdefault(json.dumps(values.get(label), sort_keys=True, default=str), []).append(host)
        if len(kinds) > 1:
            told = "; ".join(f"{json.loads(value)} on {_few(names)}" for value, names in kinds.items())
            found.append(f"{label}: {told}")
    return found


def refuse_other_sweep(stored: Mapping[str, Any], now: Mapping[str, Any], folder: str) -> None:
    """Raise SweepError where a folder holds a sweep whose points could not be compared with those of this one."""
    changed = [
        f"{name}: {_short(stored.get(name))} there, {_short(now.get(name))} now"
        for name in now
        if _plain(stored.get(name)) != _plain(now.get(name))
    ]
    if changed:
        raise SweepError(
            f"sglang_sweep_dir: {folder} holds another sweep, and points of both could not be compared. "
            f"{'; '.join(changed)}. Give another folder, or what the sweep in it has. {_NOTHING}"
        )


def refuse_adaptive(version: str, numbers: Tuple[int, ...]) -> None:
    """Raise SweepError where the hosts' SGLang cannot switch speculation off by load."""
    if numbers and numbers < ADAPTIVE_SINCE:
        raise SweepError(
            f"sglang_sweep_adaptive: SGLang {version} has no adaptive speculation that can be switched off by load, "
            f"which came with 0.5.14. Set it to false. {_NOTHING}"
        )


# -- reading options


def _numbers(option: str, given: Any) -> List[int]:
    """A list of positive whole numbers, each once; one number is a list of one."""
    if given is None or given == "" or given == []:
        return []
    found: List[int] = []
    values = _listed(given)
    for value in values:
        number = _whole(option, value)
        if number in found:
            raise SweepError(f"{option} has {number} twice: remove one of them. {_NOTHING}")
        found.append(number)
    return found


def _listed(given: Any) -> List[Any]:
    """A list; -e gives 1,3,5 as one text."""
    if isinstance(given, (list, tuple)):
        return list(given)
    return [word.strip() for word in given.split(",")] if isinstance(given, str) else [given]


def _whole(option: str, value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise SweepError(f"{option} has {value!r}: give whole numbers from 1 up. {_NOTHING}")
    return int(text)


def _environments(given: Any) -> Dict[str, Dict[str, str]]:
    found = {}
    for name, values in _checked_mapping("sglang_sweep_environments", given).items():
        _refuse_name("sglang_sweep_environments", str(name))
        found[str(name)] = environment_from(_checked_mapping(f"sglang_sweep_environments.{name}", values))
    return found


def _profiles(given: Any, base: Mapping[str, Any], known: Mapping[str, Any]) -> List[str]:
    if given is None or given == "" or given == []:
        # The profile that the inventory has chosen, unless that one does not speculate.
        chosen = str(base.get("profile") or "")
        return [chosen] if chosen and not _is_off(_speculative_of(known.get(chosen, {})).get("algorithm")) else [""]
    names = [str(name) for name in _listed(given)]
    for name in names:
        if name not in known:
            raise SweepError(
                f"sglang_sweep_profiles has {name!r}, and there are {', '.join(sorted(known))}: give one of these, or "
                f"define it in sglang_spec_profiles. {_NOTHING}"
            )
        if names.count(name) > 1:
            raise SweepError(f"sglang_sweep_profiles has {name} twice: remove one of them. {_NOTHING}")
        _refuse_name("sglang_sweep_profiles", name)
    return names


def _refuse_name(option: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SweepError(
            f"{option} has the name {name!r}: give one of at most 64 letters, digits, dots, dashes and underscores. "
            f"{_NOTHING}"
        )


def _refuse_duplicates(found: Sequence[Configuration]) -> None:
    by_key: Dict[str, Configuration] = {}
    names: Dict[str, Configuration] = {}
    for item in found:
        if item.key in by_key:
            raise SweepError(
                f"{by_key[item.key].name} and {item.name} are the same configuration: remove one of them from the "
                f"lists of the sweep. {_NOTHING}"
            )
        if item.name in names:
            raise SweepError(f"Two configurations have the name {item.name}: give another name to one. {_NOTHING}")
        by_key[item.key] = names[item.name] = item


def _refuse_unused_tokens(swept: Mapping[str, Sequence[int]], found: Iterable[Configuration]) -> None:
    """With a top-k of 1 SGLang makes the number of draft tokens: another one would silently be none."""
    used = {item.settings.get("num_draft_tokens") for item in found}
    unused = [number for number in swept["num_draft_tokens"] if number not in used]
    if unused:
        raise SweepError(
            f"sglang_sweep_num_draft_tokens has {unused[0]}, which no configuration can have: with eagle_topk 1 it is "
            f"num_steps + 1. Leave it out, or sweep a larger sglang_sweep_eagle_topk. {_NOTHING}"
        )


def _speculative_of(profile: Any) -> Dict[str, Any]:
    """The speculative settings of a profile, wherever they stand in it."""
    given = _mapping(profile)
    return {**given, **_mapping(given.get("speculative"))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _checked_mapping(option: str, value: Any) -> Mapping[str, Any]:
    if value is None or value == "" or value == []:
        return {}
    if not isinstance(value, Mapping):
        raise SweepError(f"{option} is {value!r}: give a dictionary. {_NOTHING}")
    return value


def _given(value: Any) -> bool:
    return value is not None and str(value).strip() != ""


def _is_off(value: Any) -> bool:
    return str(value or "").strip().lower() == "none"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _short(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 120 else text[:117] + "..."
