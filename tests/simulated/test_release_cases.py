# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases that patch an installed SGLang, and the way back, on stand-ins that run from copies of the package."""

from __future__ import annotations

import hashlib
import pathlib
import shutil

import pytest

from .server import EAGLE3, STANDIN, succeeded

TARGET = "sglang/launch_server.py"
SPECULATIVE = "sglang/srt/speculative/"
MARK = "served by a patched file"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Installed:
    """The package of the stand-in, where pip would have put it, and patches of it."""

    def __init__(self, server, root):
        self.server = server
        self.root = root
        shutil.copytree(STANDIN, root, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(STANDIN.parent / "fakegpu.py", root)
        server.environment["PYTHONPATH"] = str(root)
        # Its compiled files lie beside its sources, as those of an installed package do.
        del server.environment["PYTHONPYCACHEPREFIX"]
        server.environment["PYTHONDONTWRITEBYTECODE"] = ""
        for stem in ("eagle_worker", "eagle_worker_v2", "ngram_worker"):
            path = root / SPECULATIVE / f"{stem}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"# {stem}\n")

    def text(self, target=TARGET):
        return (self.root / target).read_text()

    def patch(self, content, target=TARGET, **changes):
        """The option, as the action plugin hands it over."""
        values = {"target": target, "content": content, "sha256_before": sha256(self.text(target)), "src": "mine.py"}
        return dict(values, **changes)

    def go(self, patches, environment=None, **options):
        """Check, write and start; the result of the check."""
        checked = succeeded(self.server.preflight(environment, patches=patches, **options))
        found = {patch["target"]: patch for patch in checked["sglang"]["patches"]}
        contents = [dict(found[patch["target"]], content=patch["content"]) for patch in patches]
        succeeded(self.server.present(checked, environment, patches=contents))
        succeeded(self.server.start())
        return checked


@pytest.fixture
def installed(server, tmp_path):
    return Installed(server, tmp_path / "site-packages")


def marked(text):
    """The same program, which says that it is another one as soon as it runs."""
    return text.replace('if __name__ == "__main__":', f'if __name__ == "__main__":\n    print("{MARK}", flush=True)')


def release_id(server):
    return (server.instance_dir / "current").resolve().name


def test_a_patch_serves_and_goes_with_its_release(server, installed):
    original = installed.text()
    installed.go([], **EAGLE3)
    server.prove()
    plain = release_id(server)
    assert MARK not in server.log()
    server.stop()

    checked = installed.go([installed.patch(marked(original))], **EAGLE3)
    (shown,) = checked["sglang"]["patches"]
    assert shown["path"] == str(installed.root / TARGET) and shown["sha256_after"] == sha256(marked(original))
    server.prove()
    patched = release_id(server)
    assert MARK in server.log() and installed.text() == marked(original)
    # The same once more: the patched file is as we left it, and nothing changes.
    again = succeeded(
        server.preflight(patches=[installed.patch(marked(original), sha256_before=sha256(original))], **EAGLE3)
    )
    contents = [dict(again["sglang"]["patches"][0], content=marked(original))]
    assert succeeded(server.present(again, patches=contents))["changed"] is False
    server.stop()

    back = succeeded(server.module("sglang_release", state="restored", release="previous"))
    assert back["release"]["id"] == plain and back["patched"] == [
        {"path": str(installed.root / TARGET), "restored": True}
    ]
    succeeded(server.start())
    server.prove()
    assert MARK not in server.log() and installed.text() == original
    server.stop()

    forth = succeeded(server.module("sglang_release", state="restored", release=patched[:16]))
    assert forth["release"]["id"] == patched
    succeeded(server.start())
    server.prove()
    assert MARK in server.log()

    listed = succeeded(server.module("sglang_release", state="inspected"))["releases"]
    assert {entry["id"]: (entry["current"], entry["proven"]) for entry in listed} == {
        plain: (False, True),
        patched: (True, True),
    }


def test_a_patch_of_the_same_size_is_not_hidden_by_compiled_files(server, installed):
    original = installed.text("sglang/version.py")
    assert "0.5.17" in original
    installed.go([])
    assert succeeded(server.wait())["sglang"]["version"] == "0.5.17"
    assert list((installed.root / "sglang" / "__pycache__").glob("version.*.pyc"))
    server.stop()
    for version in ("0.5.12", "0.5.23"):
        patch = installed.patch(
            original.replace("0.5.17", version), "sglang/version.py", sha256_before=sha256(original)
        )
        installed.go([patch])
        assert succeeded(server.wait())["sglang"]["version"] == version
        server.stop()
    installed.go([])
    assert succeeded(server.wait())["sglang"]["version"] == "0.5.17"
    assert installed.text("sglang/version.py") == original


@pytest.mark.parametrize(
    ("version", "options", "stem", "instead"),
    [
        ("0.5.12", EAGLE3, "eagle_worker", "eagle_worker_v2"),
        ("0.5.7", EAGLE3, "eagle_worker_v2", "eagle_worker"),
        ("0.5.17", EAGLE3, "ngram_worker", "eagle_worker_v2"),
        ("0.5.17", {"speculative_algorithm": "none"}, "eagle_worker_v2", "does not speculate"),
        ("0.5.12", EAGLE3, "eagle_worker_v2", None),
        ("0.5.7", EAGLE3, "eagle_worker", None),
    ],
)
def test_a_worker_that_the_version_does_not_use_is_refused_before_anything_happens(
    server, installed, version, options, stem, instead
):
    patch = installed.patch("patched = True\n", f"{SPECULATIVE}{stem}.py")
    result = server.preflight({"STANDIN_VERSION": version}, patches=[patch], **options)
    if instead is None:
        succeeded(result)
        return
    assert result["failed"] and f"{stem}.py" in result["msg"] and instead in result["msg"]
    assert not server.instance_dir.exists() and installed.text(patch["target"]) == f"# {stem}\n"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sha256_before": "0" * 64}, "is of another version, or somebody else changed it"),
        ({"target": "sglang/srt/gone.py"}, "sglang/srt/gone.py does not exist in the installed SGLang"),
        ({"content": "def broken(:\n"}, "is no valid Python"),
        ({"sha256_after": "0" * 64}, "not the file that was meant"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused_before_anything_happens(server, installed, changes, part):
    original = installed.text()
    result = server.preflight(patches=[dict(installed.patch("x = 1\n"), **changes)])
    assert result["failed"] and part in result["msg"]
    assert not server.instance_dir.exists() and installed.text() == original


def test_an_upgrade_between_two_deployments_is_noticed(server, installed):
    original = installed.text()
    installed.go([installed.patch(marked(original))])
    server.stop()
    upgraded = original + "# of the next version\n"
    (installed.root / TARGET).write_text(upgraded)
    patch = installed.patch(marked(original), sha256_before=sha256(original))
    refused = server.preflight(patches=[patch])
    assert refused["failed"] and sha256(upgraded) in refused["msg"]
    installed.go([])
    assert installed.text() == upgraded
    assert not list(pathlib.Path(server.instance_dir.parent).glob(".patches/*/manifest.json"))
