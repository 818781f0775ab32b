# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.options import problems_of


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--privileged"],
        ["--cap-add", "SYS_NICE", "--cap-add=IPC_LOCK"],
        ["--device=/dev/infiniband/uverbs0", "--device", "/dev/nvidia0"],
        ["--ulimit", "stack=67108864"],
        ["--label", "team=search"],
        ["-m", "64g", "-m64g"],
        ["--hostname=-odd"],
        ["--tmpfs", "/scratch", "--read-only"],
        # A value that looks like one of our options is a value; so is one that looks like short options.
        ["--annotation", "run.oci.keep_original_groups=1"],
    ],
)
def test_words_that_may_be_given(words):
    assert problems_of(words) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--name", "x"], "--name is not yours to give"),
        (["--name=x"], "--name is not yours to give"),
        (["--restart=always"], "start a server that is being replaced"),
        (["-d"], "-d (--detach)"),
        (["--privileged", "-it"], "-it (--tty)"),
        (["-v", "/a:/b"], "the option volumes"),
        (["-v/a:/b"], "the option volumes"),
        (["-e", "KEY=x"], "keeps values off the command line"),
        (["-eKEY=x"], "keeps values off the command line"),
        (["-p8000:8000"], "nothing to publish"),
        (["--net", "bridge"], "host's network"),
        (["--rm"], "--rm is not yours"),
        (["--pid=host"], "told from others"),
        (["--gpus", "all"], "gpu_access"),
        (["--pull=always"], "never pulled"),
        (["--label", "inferops.sglang.instance=other"], "label of this collection"),
        (["--label=inferops.sglang.instance=other"], "label of this collection"),
        (["--privileged", "ubuntu"], "'ubuntu' belongs to no option"),
        (["ubuntu"], "'ubuntu' belongs to no option"),
        (["--cap-add=X", "ubuntu"], "'ubuntu' belongs to no option"),
        (["--"], "ends the engine's options"),
        (["-"], "ends the engine's options"),
    ],
)
def test_words_that_may_not(words, said):
    found = problems_of(words)
    assert any(said in problem for problem in found), found
    assert all(problem.endswith((": remove it.", "for the image.")) for problem in found)


def test_a_value_is_not_read_as_options():
    # -m takes the rest of its word, so that the letters in it are none.
    assert problems_of(["-mdit"]) == []


def test_all_problems_are_named():
    assert len(problems_of(["--rm", "-d", "--name", "x", "y"])) == 4


def test_gpus_are_given_by_words_where_nothing_else_gives_them():
    words = ["--runtime=nvidia", "--gpus", "all"]
    assert len(problems_of(words)) == 2 and problems_of(words, gives_gpus=True) == []
