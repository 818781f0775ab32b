# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make and test the mutants of one prepared folder with mutmut, and write down what became of each.

usage: mutate.py RESULTS [again]        in a folder that run.py has prepared; RESULTS is the file to write (JSON)

again: test only the mutants that no test has failed for so far.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import libcst
import mutmut.__main__ as program
from mutmut.mutation import mutators
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key


def mutated_word(node):
    """A string with other content, where it is a word to programs: a code, a name, a format.

    A sentence is for people.  That it names what it must is tested by its keywords, and a mutant that says the same
    in capitals is worth no test.  One mutant for each word will do: mutmut by itself makes three.
    """
    if isinstance(node, libcst.SimpleString) and " " in node.raw_value:
        return
    yield from list(mutators.operator_string(node))[:1]


def mutants():
    """Each mutant: its file, its name, and what became of it."""
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for name, code in data.exit_code_by_key.items():
            yield path, name, status_by_exit_code[code]


def result(path: Path, name: str, status: str) -> dict:
    """A mutant as run.py wants it."""
    function, owner = orig_function_and_class_names_from_key(name)
    return {
        "function": f"{owner}.{function}" if owner else function,
        "status": status,
        "diff": get_diff_for_mutant(name, path=path),
    }


def main(target: Path, again: bool) -> None:
    """Run mutmut as its command line does, with one worker."""
    operators = mutators.mutation_operators
    operators[:] = [(kind, mutated_word if kind is libcst.BaseString else function) for kind, function in operators]
    names = tuple(name for _path, name, status in mutants() if status != "killed") if again else ()
    if names or not again:
        program._run(names, 1)
    target.write_text(json.dumps([result(*mutant) for mutant in mutants()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "again" in sys.argv[2:])
