# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exact names of options.

SGLang's parser takes every unique beginning of a name, so a typo, or the name of an option that only
other versions have, can be read as another option without a word.
"""

from __future__ import annotations

import difflib
from typing import Dict, List, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import parse_extra_args
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculative_options import words_of

_NAME = "option_names"


def check_option_names(
    argv: Sequence[str], secret_args: Sequence[str], known: Sequence[str], sources: Dict[str, str], version: str
) -> List[Check]:
    """Refuse every option that is not exactly one of the parser's.

    argv is the server's command line, secret_args are names without dashes; known are all option strings
    of the parser, () where they are unknown; sources says where an option was given.
    """
    if not known:
        return []
    names = [option.name for option in parse_extra_args(argv)[0]] + ["--" + name for name in secret_args]
    found = []
    for name in dict.fromkeys(names):
        # SGLang reads --config before its parser, and has rules of its own for it.
        if name not in known and name != "--config":
            found.append(failed(_NAME, _message(name, sources.get(name, "extra_args"), known, version)))
    return found


def _message(name: str, source: str, known: Sequence[str], version: str) -> str:
    text = f"{name} in {source} is no option of SGLang {version}".rstrip()
    meant = [option for option in known if option.startswith(name)] if name.startswith("--") else []
    if len(meant) == 1:
        return f"{text}: it would be read as {meant[0]}. Write the name in full."
    near = _nearest(name, known)
    return f"{text}: {'did you mean ' + near + '?' if near else 'remove it.'}"


def _nearest(name: str, known: Sequence[str]) -> str:
    """The option that is most like a name, "" where none is; what many names begin with does not count."""
    start = "--speculative-" if name.startswith("--speculative-") else "--"
    endings = {option[len(start) :]: option for option in known if option.startswith(start)}
    near = difflib.get_close_matches(name[len(start) :], list(endings), n=1, cutoff=0.7)
    return endings[near[0]] if near else ""


def sources_of(fields: Sequence[str], speculative_options: Sequence[str], secret_args: Sequence[str]) -> Dict[str, str]:
    """Where each option that is not from extra_args was given."""
    sources = {"--" + name.replace("_", "-"): "the options of the module" for name in fields}
    sources.update({words_of(name, True)[0]: "speculative_options" for name in speculative_options})
    sources.update({"--" + name: "secret_args" for name in secret_args})
    return sources
