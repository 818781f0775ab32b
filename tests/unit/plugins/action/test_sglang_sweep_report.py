# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as tasks of a real play, and without the library that its plots need."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.modules import sglang_sweep_report
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples

HAS_PLOTS = importlib.util.find_spec("matplotlib") is not None

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - inferops.sglang.sglang_sweep_report:
        dir: sweep
      check_mode: true
      register: rehearsed
    - inferops.sglang.sglang_sweep_report:
        dir: sweep
      register: first
    - inferops.sglang.sglang_sweep_report:
        dir: sweep
      register: second
    - inferops.sglang.sglang_sweep_report:
        results: sweep/results.json
        dest: copy
        title: Another {{ '{{' }} 7 * 7 }} title
        html: false
      register: copied
    - inferops.sglang.sglang_sweep_report:
        results: sweep/results.json
        dest: missing
      register: refused
      ignore_errors: true
    - copy:
        content: "{{ dict(wanted | zip(wanted | map('extract', vars))) | to_json }}"
        dest: "{{ playbook_dir }}/results_of_tasks.json"
        mode: "600"
      vars:
        wanted: [rehearsed, first, second, copied, refused]
"""


@pytest.fixture
def play(tmp_path, collections):
    """Run a play beside the folder of a sweep: (exit status, output)."""

    def run(text, *options, path=""):
        samples.write_folder(samples.small(), tmp_path / "sweep")
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "play.yml").write_text(text)
        interpreter = ["-e", f"ansible_python_interpreter={sys.executable}"]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ansible",
                "playbook",
                "-i",
                "localhost,",
                "-c",
                "local",
                "play.yml",
                *interpreter,
                *options,
            ],
            cwd=tmp_path,
            check=False,
            env=dict(
                os.environ,
                ANSIBLE_COLLECTIONS_PATH=str(collections),
                ANSIBLE_NOCOLOR="1",
                ANSIBLE_LOCALHOST_WARNING="0",
                PYTHONPATH=os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")])),
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )
        return done.returncode, done.stdout

    return run


@pytest.mark.long
@pytest.mark.skipif(not HAS_PLOTS, reason="this Python has no matplotlib")
def test_a_report_is_made_once(play, tmp_path):
    status, output = play(PLAY)
    assert status == 0, output
    found = json.loads((tmp_path / "results_of_tasks.json").read_text())
    folder = tmp_path / "sweep"
    files = {name: str(folder / file) for name, file in (("json", "results.json"), ("csv", "results.csv"))}
    assert found["first"]["files"] == {**files, "html": str(folder / "report.html")}
    assert [found[name]["changed"] for name in ("rehearsed", "first", "second", "copied")] == [True, True, False, True]
    # What is returned is what is documented, in check mode as well.
    documented = yaml.safe_load(sglang_sweep_report.RETURN)
    for name in ("rehearsed", "first"):
        assert set(documented) == set(found[name]) - {"changed", "failed", "invocation", "exception", "warnings"}
    assert set(found["first"]["decision"][0]) == set(documented["decision"]["contains"])
    assert set(found["first"]["crossovers"][0]) == set(documented["crossovers"]["contains"])
    assert set(found["first"]["adaptive"]) == set(documented["adaptive"]["contains"])
    # Results made of results are the same, and so is their analysis.
    assert (tmp_path / "copy" / "results.json").read_text() == (folder / "results.json").read_text()
    assert sorted(os.listdir(tmp_path / "copy")) == ["results.csv", "results.json"]
    assert "html" not in found["copied"]["files"]
    assert found["refused"]["failed"] and "dest: " in found["refused"]["msg"] and "no folder" in found["refused"]["msg"]
    for line in (*found["first"]["summary"], f"Report: {folder}/report.html"):
        assert line in output
    assert "<h1>llama-70b</h1>" in (folder / "report.html").read_text()


def test_check_mode_writes_nothing(play, tmp_path):
    text = "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
    text += "    - inferops.sglang.sglang_sweep_report: {dir: sweep, html: false}\n"
    status, output = play(text, "--check")
    assert status == 0 and "changed=1" in output
    assert sorted(os.listdir(tmp_path / "sweep")) == ["configurations", "points", "sweep.json"]


def test_without_the_library_the_figures_are_there(play, tmp_path):
    broken = tmp_path / "broken" / "matplotlib"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('it is broken')\n")
    text = (
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - inferops.sglang.sglang_sweep_report: {dir: sweep}\n"
    )
    status, output = play(text, path=str(tmp_path / "broken"))
    told = " ".join(output.split())
    assert status == 2 and "it is broken" in told and "pip install 'matplotlib>=3.6'" in told
    assert "results.json and results.csv have everything but the plots" in told
    assert {"results.json", "results.csv"} <= set(os.listdir(tmp_path / "sweep"))
    assert not (tmp_path / "sweep" / "report.html").exists()
