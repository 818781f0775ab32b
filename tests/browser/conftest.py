# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One browser for all tests, and the pages that it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils import status_page
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_differences import differences, summary
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import host_entry
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import shaped
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.page import page
from ansible_collections.inferops.sglang.tests.browser import chromium
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils import status_samples
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests/unit/plugins/plugin_utils/sweep_analysis/example_results.json"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium without a network."""
    if not chromium.program():
        pytest.skip("this machine has no Chromium; `make browser` installs it")
    with chromium.Chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """The files of the pages, by name."""
    folder = tmp_path_factory.mktemp("pages")
    sweeps = {
        "usual": samples.usual(),
        "large": samples.large(),
        "hostile": samples.hostile(),
        "empty": samples.document(),
        "example": json.loads(EXAMPLE.read_text(encoding="utf-8")),
    }
    found = {}
    for name, raw in sweeps.items():
        document, problems = shaped(raw)
        found[name] = folder / f"{name}.html"
        found[name].write_text(page(document, analyse(document), problems), encoding="utf-8")
    found["status"] = folder / "status.html"
    found["status"].write_text(_status(), encoding="utf-8")
    # Reports that stand in the docs are looked at as well.
    for file in sorted((ROOT / "docs/examples").glob("*/report.html")):
        found[file.parent.name] = file
    return found


def _status() -> str:
    results = [
        (status_samples.gpus(), status_samples.servers()),
        (status_samples.gpus(driver="570.1"), status_samples.servers(status_samples.server("main", "failed"))),
        (status_samples.UNREACHABLE, None),
        ({"msg": status_samples.HOSTILE}, {"failed": True, "msg": status_samples.HOSTILE}),
    ]
    hosts = [host_entry(f"gpu-{number}", "all", *pair) for number, pair in enumerate(results)]
    odd = differences(hosts)
    return status_page.page(hosts, odd, summary(hosts, odd), "2026-11-30T10:52:07Z")
