# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the options of a task to SGLang's command line.

Options have SGLang's own names, so an option speculative_num_steps becomes --speculative-num-steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import speculative_options
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import is_secret_argument

SPECULATIVE_NUMBERS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
# All speculative options of their own, algorithm first.
SPECULATIVE = ("speculative_algorithm", "speculative_draft_model_path", *SPECULATIVE_NUMBERS)

# In the order in which they stand in the command line.
_FIELDS = (
    "model_path",
    "served_model_name",
    "host",
    "port",
    "tp_size",
    "pp_size",
    "dp_size",
    "max_running_requests",
    "mem_fraction_static",
    *SPECULATIVE,
)
# Left out of the command line at this value, which is SGLang's own default.
_NOT_RENDERED_AT = {"pp_size": 1, "dp_size": 1}

# SGLang's other spellings of the options above.
_ALIASES = {
    "--model": "model_path",
    "--tp": "tp_size",
    "--tensor-parallel-size": "tp_size",
    "--pp": "pp_size",
    "--pipeline-parallel-size": "pp_size",
    "--dp": "dp_size",
    "--data-parallel-size": "dp_size",
    "--speculative-draft-model": "speculative_draft_model_path",
}

KNOWN_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "FROZEN_KV_MTP")


@dataclass(frozen=True)
class ExtraOption:
    """One option out of extra_args: --name and the words that follow it."""

    name: str
    values: Tuple[str, ...]
    inline: bool = False

    @property
    def field(self) -> str:
        """The name of SGLang's field, as in /server_info."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def words(self) -> List[str]:
        """As it stands in a command line."""
        if self.inline:
            return [self.name + "=" + self.values[0], *self.values[1:]]
        return [self.name, *self.values]

    @property
    def value(self) -> Any:
        """The value as SGLang is likely to read it: True for a flag, a number where it looks like one."""
        if not self.values:
            return True
        typed = [speculative_options.typed(text) for text in self.values]
        return typed[0] if len(typed) == 1 else typed


def parse_extra_args(words: Sequence[str]) -> Tuple[List[ExtraOption], List[str]]:
    """The options in a list of words, and the words before the first option, which belong to none."""
    options: List[ExtraOption] = []
    stray: List[str] = []
    for word in words:
        if word.startswith("-") and not speculative_options.is_number(word) and word != "-":
            name, equals, value = word.partition("=")
            options.append(ExtraOption(name, (value,) if equals else (), bool(equals)))
        elif options:
            options[-1] = replace(options[-1], values=(*options[-1].values, word))
        else:
            stray.append(word)
    return options, stray


@dataclass(frozen=True)
class Settings:
    """A server as it was asked for.  None means that SGLang decides.

    speculation_off: the user asked for no speculation in so many words.
    left_out: what was dropped for that reason.
    speculative_options: further speculative settings, see there; adaptive_config: the adaptive
    configuration that was given as data; files: the files that the command line names, which the release
    brings along.
    """

    model_path: str
    served_model_name: Optional[str] = None
    host: str = "127.0.0.1"
    port: int = 30000
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    max_running_requests: Optional[int] = None
    mem_fraction_static: Optional[float] = None
    speculative_algorithm: Optional[str] = None
    speculative_draft_model_path: Optional[str] = None
    speculative_num_steps: Optional[int] = None
    speculative_eagle_topk: Optional[int] = None
    speculative_num_draft_tokens: Optional[int] = None
    extra_args: Tuple[str, ...] = ()
    speculation_off: bool = False
    left_out: Tuple[str, ...] = ()
    speculative_options: Mapping[str, Any] = field(default_factory=dict)
    adaptive_config: Optional[Mapping[str, Any]] = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def extra_options(self) -> List[ExtraOption]:
        """extra_args, taken apart."""
        return parse_extra_args(self.extra_args)[0]

    def extra_value(self, *names: str) -> Any:
        """The value of an option in extra_args (the last one counts), or None."""
        values = [option.value for option in self.extra_options if option.name in names]
        return values[-1] if values else None


def settings_from(params: Mapping[str, Any], release_folder: str = "") -> Settings:
    """Read the options of a task.  Empty strings mean "not given".

    A known algorithm is written in capitals, since versions up to 0.5.7 take nothing else; "none"
    drops everything else about speculation, so that an inventory may keep it.  release_folder is where
    the server will find the files that its release brings along.
    """
    given: Dict[str, Any] = {name: params.get(name) for name in _FIELDS}
    given = {"model_path": "", **{name: value for name, value in given.items() if value not in (None, "")}}
    extra = tuple(params.get("extra_args") or ())
    options = speculative_options.settled(params.get("speculative_options") or {})
    algorithm = str(given.get("speculative_algorithm", ""))
    if algorithm.lower() == "none":
        kept, dropped = _without_speculation(extra)
        left_out = [name for name in SPECULATIVE[1:] if name in given]
        left_out += [speculative_options.PREFIX + name for name in options] + dropped
        for name in SPECULATIVE:
            given.pop(name, None)
        return Settings(**given, extra_args=kept, speculation_off=True, left_out=tuple(left_out))
    if algorithm.upper() in KNOWN_ALGORITHMS:
        given["speculative_algorithm"] = algorithm.upper()
    config = options.get(speculative_options.ADAPTIVE_CONFIG)
    if not isinstance(config, Mapping):
        return Settings(**given, extra_args=extra, speculative_options=options)
    options[speculative_options.ADAPTIVE_CONFIG] = f"{release_folder}/{speculative_options.ADAPTIVE_FILE}"
    files = {speculative_options.ADAPTIVE_FILE: speculative_options.adaptive_text(config)}
    return Settings(**given, extra_args=extra, speculative_options=options, adaptive_config=config, files=files)


def _without_speculation(words: Sequence[str]) -> Tuple[Tuple[str, ...], List[str]]:
    options, stray = parse_extra_args(words)
    # An algorithm in extra_args contradicts "none" and is refused later on.
    drop = [o for o in options if o.name.startswith("--speculative-") and not structured_option(o.name)]
    kept = list(stray)
    for option in options:
        if option not in drop:
            kept.extend(option.words)
    return tuple(kept), [option.name for option in drop]


def build_argv(settings: Settings) -> List[str]:
    """The server's arguments, without interpreter and module.  The same settings give the same list."""
    argv: List[str] = []
    for name in _FIELDS:
        value = getattr(settings, name)
        if value is not None and value != _NOT_RENDERED_AT.get(name):
            argv += ["--" + name.replace("_", "-"), str(value)]
    for name, value in settings.speculative_options.items():
        argv += speculative_options.words_of(name, value)
    return argv + list(settings.extra_args)


def requested_fields(settings: Settings) -> Dict[str, Any]:
    """What was asked for, by the names that SGLang gives to its own fields.

    Contains the algorithm always: None is the request for a server that does not speculate.
    """
    fields = {name: getattr(settings, name) for name in _FIELDS}
    requested = {name: value for name, value in fields.items() if value is not None}
    requested["speculative_algorithm"] = settings.speculative_algorithm
    for name, value in settings.speculative_options.items():
        requested[speculative_options.PREFIX + name] = speculative_options.requested_value(value)
    # Of an option that is given again, SGLang takes the last one.
    extra = {
        option.field: option.value
        for option in settings.extra_options
        if option.name.startswith("--") and option.name != "--config" and not is_secret_argument(option.name)
    }
    return {**requested, **{name: value for name, value in extra.items() if name not in requested}}


def structured_option(option: str) -> str:
    """The option of the module that an argument means, "" for none.  argparse takes unique beginnings too."""
    if option in _ALIASES:
        return _ALIASES[option]
    field = option.lstrip("-").replace("-", "_")
    if field in _FIELDS:
        return field
    if option.startswith(("--speculative-", "--max-running", "--mem-frac", "--served-model")):
        return next((name for name in _FIELDS if name.startswith(field)), "")
    return ""


_NAME = "arguments"


def check_extra_args(settings: Settings) -> List[Check]:
    """Find what SGLang would misread, read twice, or show to everybody."""
    options, stray = parse_extra_args(settings.extra_args)
    found = [failed(_NAME, f"extra_args begins with {word!r}, which belongs to no option.") for word in stray[:1]]
    for option in options:
        found += _check_option(option)
        found += _check_repeated(option, settings)
    names = [option.name for option in options]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(warning(_NAME, f"extra_args has {name} more than once: SGLang takes the last one."))
    if any("\0" in word for word in settings.extra_args):
        found.append(failed(_NAME, "extra_args contains a NUL character, which no command line can carry."))
    if settings.left_out:
        found.append(ok(_NAME, "Left out, since speculation is off: " + ", ".join(settings.left_out) + "."))
    return found or [ok(_NAME, "No contradiction in the arguments.")]


def _check_option(option: ExtraOption) -> List[Check]:
    structured = structured_option(option.name)
    if structured:
        return [
            failed(
                _NAME,
                f"{option.name} in extra_args and the option {structured} mean the same: "
                f"give {structured} and remove {option.name} from extra_args.",
            )
        ]
    if re.search(r"\s", option.name):
        return [failed(_NAME, f"{option.name!r} in extra_args is one word: give option and value as two elements.")]
    if is_secret_argument(option.name) and option.values:
        bare = option.name.lstrip("-")
        return [
            failed(
                _NAME,
                f"{option.name} in extra_args would show its value in process lists and logs: "
                f"give it as {bare} in secret_args.",
            )
        ]
    if option.name == "--config":
        if option.inline:
            return [failed(_NAME, "SGLang ignores --config=FILE: give --config and the file as two elements.")]
        return [warning(_NAME, "What the file of --config sets is not part of these checks.")]
    return []


def _check_repeated(option: ExtraOption, settings: Settings) -> List[Check]:
    """argparse takes unique beginnings of names too, unless the beginning is a name itself."""
    start = option.field[len(speculative_options.PREFIX) :]
    if not option.field.startswith(speculative_options.PREFIX):
        return []
    given = settings.speculative_options
    whole = start in given or start in speculative_options.KNOWN_OPTIONS
    repeated = [name for name in given if name == start or (start and not whole and name.startswith(start))]
    return [
        failed(_NAME, f"{option.name} in extra_args repeats {name} of speculative_options: remove one of them.")
        for name in repeated[:1]
        if not structured_option(option.name)
    ]


def check_speculative_options(settings: Settings) -> List[Check]:
    """Names and values that SGLang could not even misread."""
    return [failed(_NAME, problem) for problem in speculative_options.problems(settings.speculative_options)]


def check_secret_args(secret_args: Mapping[str, str], settings: Settings) -> List[Check]:
    """Secret arguments reach the server in a file, which has rules of its own."""
    name = "secret_args"
    found = []
    for option, value in secret_args.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", option):
            found.append(failed(name, f"{option!r} in secret_args is no option: write it like api-key."))
        elif not re.fullmatch(r"[!-,.-~][ -~]*", value):
            # The file's values become words of a command line inside SGLang, and headers of HTTP.
            found.append(
                failed(name, f"The value of {option} in secret_args is empty, begins with '-', or is not plain ASCII.")
            )
    if secret_args and any(option.name == "--config" for option in settings.extra_options):
        found.append(
            failed(name, "secret_args needs SGLang's --config, which extra_args has already: use one of them.")
        )
    return found
