# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe as it runs on a host: a new interpreter for one question, with nothing warmed up."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest
import releases
from cases import CASES
from conftest import BUILD, PATIENCE

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ACCEPTED

WITHOUT_NETWORK = ["unshare", "--net"]


# One is enough: what is kept warm begins as a new interpreter too.
@pytest.mark.parametrize("release", list(releases.releases())[-1:], indirect=True)
def test_a_new_interpreter_without_a_network_says_the_same(release, models, capsys):
    """Nothing but the local folders of the models is needed; the time is printed."""
    isolated = shutil.which("unshare") and not subprocess.run([*WITHOUT_NETWORK, "true"], check=False).returncode
    if not isolated:
        pytest.skip("taking the network away needs root")
    case = CASES["no numbers"]
    began = time.monotonic()
    fresh = release.ask(case.argv(models), wrap=lambda words, _environment: [*WITHOUT_NETWORK, *words])
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(f"\nsglang {release.version}: one question to a new interpreter took {seconds:.1f} s")
    assert fresh.status == ACCEPTED, fresh
    assert seconds < PATIENCE
    warm = release.ask(case.argv(models))
    same = {name: value for name, value in fresh.fields.items() if name not in ("random_seed", "nccl_port")}
    assert same == {name: warm.fields[name] for name in same}
    assert (fresh.options, fresh.package) == (warm.options, warm.package)


def test_the_newest_release_is_among_those_tested():
    known = list(releases.releases())
    newest = (BUILD / "newest").read_text() if (BUILD / "newest").exists() else ""
    if not newest:
        pytest.skip("pip found no list of releases")
    if releases.numbers(newest) > releases.numbers(known[-1]):
        pytest.skip(f"there is an sglang {newest}, newer than {known[-1]}: see docs/versions.md for how to add it")
