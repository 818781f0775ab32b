# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps secrets out of what modules return, show and log.

Names decide: an argument or a variable whose name says that it holds a secret loses its value.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import SENTENCE, visible

REDACTED = "********"

_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
# Of SGLang's own options; "token" would hit --max-total-tokens and many more.
_ARGUMENT = re.compile(r"api-key|password|passwd|secret|credential|auth-token|hf-token", re.IGNORECASE)
# The beginnings of --api-key, --admin-api-key and --ssl-keyfile-password; --ssl-keyfile is an option of its own.
_ABBREVIATED = re.compile(r"ap|api(?:-(?:k(?:ey?)?)?)?|ad|adm(?:i(?:n(?:-[a-z-]*)?)?)?|ssl-keyfile-[a-z]*")
_PASSWORD_IN_URL = re.compile(r"(://[^\s/@:]*:)[^\s/@]+(?=@)")
# Fields of /server_info that hold secrets although their names do not say so.
_INFO_FIELDS = frozenset(["launch_command"])
# Shorter values would blank out unrelated text, such as every "1".
_SHORTEST_SECRET = 6
# Of a command line that is shown.
_MOST_WORDS = 200


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable holds a secret, judged by its name."""
    return bool(_VARIABLE.search(name))


def is_secret_argument(option: str) -> bool:
    """Whether a command-line option (with or without dashes) takes a secret, judged by its name.

    With dashes the beginning of a name is enough, as it is for SGLang's parser.
    """
    name = option.replace("_", "-")
    return bool(_ARGUMENT.search(name)) or (name.startswith("--") and _ABBREVIATED.fullmatch(name[2:]) is not None)


def secret_name(option: str) -> str:
    """The whole name, without dashes, of a secret option that may be shortened."""
    name = option.lstrip("-").replace("_", "-")
    if _ABBREVIATED.fullmatch(name) is None:
        return name
    beginnings = (("ap", "api-key"), ("ad", "admin-api-key"), ("ssl", "ssl-keyfile-password"))
    return next(whole for beginning, whole in beginnings if name.startswith(beginning))


def secret_argument_values(argv: Sequence[str]) -> List[str]:
    """The values that secret options have in a command line, in order."""
    found = []
    for position, word in enumerate(argv):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        if not is_secret_argument(name):
            continue
        if equals:
            found.append(value)
        elif position + 1 < len(argv):
            found.append(argv[position + 1])
    return found


def redact_argv(argv: Sequence[str]) -> List[str]:
    """A copy of a command line in which the values of secret options are replaced."""
    shown = []
    hide_next = False
    for word in argv:
        if hide_next:
            shown.append(REDACTED)
            hide_next = False
            continue
        name, equals, _value = word.partition("=")
        if word.startswith("--") and is_secret_argument(name):
            hide_next = not equals
            shown.append(name + "=" + REDACTED if equals else word)
        else:
            shown.append(word)
    return shown


def shown_command(argv: Sequence[str]) -> List[str]:
    """A command line for people: nothing secret, also inside of its words, and everything shows.

    It is not to be run any more.
    """
    # A word is cut where nothing of it is shown any more, so that an address keeps the end of its password.
    words = [word[: 4 * SENTENCE] for word in redact_argv(argv[:_MOST_WORDS])]
    return [visible(redact_text(word, ()), SENTENCE) for word in words]


def redact_environment(environment: Mapping[str, Any]) -> Dict[str, Any]:
    """A copy of an environment in which the values of secret variables are replaced."""
    return {name: shown_variable(name, value) for name, value in environment.items()}


def shown_variable(name: str, value: Any) -> Any:
    """The value of a variable for people: nothing of a secret, and no password of an address such as a proxy's."""
    if is_secret_variable(name):
        return REDACTED
    return _PASSWORD_IN_URL.sub(r"\g<1>" + REDACTED, value) if isinstance(value, str) else value


def redact_info(info: Mapping[str, Any]) -> Dict[str, Any]:
    """A copy of /server_info, or of SGLang's arguments, without secrets at any depth.

    Secret fields that are empty stay: that a key is not set is worth knowing.
    """
    return {name: _redact_value(value) for name, value in info.items() if not _hidden_field(name, value)}


def _hidden_field(name: str, value: Any) -> bool:
    if name in _INFO_FIELDS:
        return True
    secret = is_secret_argument(name) or name == "env_vars"
    return secret and value not in (None, "", [], {})


def _redact_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact_info(value)
    if isinstance(value, (list, tuple)):
        return [_redact_value(item) for item in value]
    return value


def secrets_of(
    argv: Sequence[str], environment: Mapping[str, Any], secret_args: Optional[Mapping[str, str]] = None
) -> Set[str]:
    """The secret values in a command line and an environment, and all of secret_args, for redact_text."""
    values = set(secret_argument_values(argv))
    values.update(str(value) for name, value in environment.items() if is_secret_variable(name))
    return {value for value in values if len(value) >= _SHORTEST_SECRET} | set((secret_args or {}).values())


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """A text without the given secrets, and without what follows a secret option or field in it."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if secret:
            text = text.replace(secret, REDACTED)
    text = _without_options(text)
    for pattern in (_FIELD_IN_TEXT, _VARIABLE_IN_TEXT, _IN_REQUEST):
        text = pattern.sub(_blanked, text)
    return _PASSWORD_IN_URL.sub(r"\g<1>" + REDACTED, _HUB_TOKEN.sub(REDACTED, text))


# What stands for a value: all between two quotes, which a shell, Python or JSON may have put a backslash before;
# else all up to the next space, and in a list of fields up to what ends a field.
_QUOTED = r"""(?P<quote>\\*["'])(?:(?!(?P=quote))(?:\\.|[^\\\n]|\\(?=["'])))*(?:(?P=quote))?"""
# None and null are no secrets, nor is what was taken out already.
_NOTHING = r"""(?!\\*["']?(?:\*{8}|None\b|null\b))"""
# --api-key VALUE, --api-key=VALUE.  Whole names: a pattern that looks for secret words inside of them takes hours
# for a line that was made for it.
_OPTION = re.compile(r"(?<![\w-])--(\w[\w-]{0,60})(?=[=\s])")
_OPTION_VALUE = re.compile(r"((?:=|\s+))" + _NOTHING + "(?:" + _QUOTED + r"|\S+)")
# api_key='VALUE' (the repr of SGLang's arguments), "api_key": "VALUE" (JSON, also as a string inside of JSON).
_FIELD_IN_TEXT = re.compile(
    r"""(\b(?:admin_)?api_key\\*["']?\s*[=:]\s* | \bssl_keyfile_password\\*["']?\s*[=:]\s*)"""
    + _NOTHING
    + "(?:"
    + _QUOTED
    + r"""|[^\s"',)\\]+)""",
    re.VERBOSE,
)
# HF_TOKEN=VALUE, as in a command or an environment.
_VARIABLE_IN_TEXT = re.compile(
    r"(\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)=)"
    + _NOTHING
    + "(?:"
    + _QUOTED
    + r"""|[^\s"',)]+)""",
    re.VERBOSE,
)
# Authorization: Bearer VALUE; ?token=VALUE in an address.
_IN_REQUEST = re.compile(
    r"""(\bbearer\s+ | [?&][a-z_-]*(?:key|token|secret|password|signature|credential)=)(?!\*{8})[^\s"'&<>,)]+""",
    re.VERBOSE | re.IGNORECASE,
)
# Tokens of the hub that models come from tell themselves.
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")


def _without_options(text: str) -> str:
    """A text in which the values that secret options have are replaced."""
    parts, done = [], 0
    for option in _OPTION.finditer(text):
        if option.start() < done or not is_secret_argument("--" + option.group(1)):
            continue
        value = _OPTION_VALUE.match(text, option.end())
        if value is not None:
            parts += [text[done : option.end()], _blanked(value)]
            done = value.end()
    return "".join(parts) + text[done:]


def _blanked(found: re.Match[str]) -> str:
    quote = found.groupdict().get("quote") or ""
    return found.group(1) + quote + REDACTED + quote


def settle_hidden_values(hidden: Set[str], environment: Mapping[str, Any], secret_args: Mapping[str, Any]) -> None:
    """Narrow the set of values that AnsibleModule blanks out of a result.

    The option environment is marked as secret, so that Ansible does not log it on the host.  Blanking
    out all its values would however wipe every "1" from the result: only the secret ones stay.
    """
    hidden.difference_update(str(value) for value in environment.values())
    hidden.update(secrets_of((), environment))
    hidden.update(str(value) for value in secret_args.values())
    hidden.discard("")
