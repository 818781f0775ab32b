# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the real roles by ansible-playbook; in place of modules, action plugins note what they were called with."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
_COLLECTION = "ansible_collections/inferops/sglang"


def play(folder, text, hosts, shared, noting, real=()):
    """Run a play on these hosts and return how it ended.

    noting: the action plugins that stand for modules, by name, as text.  real: the collection's own, by name.
    """
    tree = folder / _COLLECTION
    (tree / "plugins" / "action").mkdir(parents=True)
    for name in ("roles", "meta", "galaxy.yml"):
        (tree / name).symlink_to(ROOT / name)
    for name in ("filter", "plugin_utils", "module_utils", "doc_fragments"):
        (tree / "plugins" / name).symlink_to(ROOT / "plugins" / name)
    for name, plugin in noting.items():
        (tree / "plugins" / "action" / (name + ".py")).write_text(plugin)
    for name in real:
        (tree / "plugins" / "action" / (name + ".py")).symlink_to(ROOT / "plugins" / "action" / (name + ".py"))
    shared = {"ansible_connection": "local", "case_dir": str(folder), **shared}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": shared}}))
    (folder / "play.yml").write_text(text)
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_FORKS": "4",
    }
    # The collection is the one above, wherever this process found its own.
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [str(pathlib.Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
