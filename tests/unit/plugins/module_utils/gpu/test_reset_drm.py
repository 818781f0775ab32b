# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel module nvidia_drm."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_drm
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeRun


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Lays out a kernel with these modules, and the module's parameter."""

    def lay_out(modules, modeset=None):
        (tmp_path / "proc").mkdir(exist_ok=True)
        (tmp_path / "proc" / "modules").write_text(modules)
        if modeset is not None:
            folder = tmp_path / "sys/module/nvidia_drm/parameters"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "modeset").write_text(modeset)
        monkeypatch.setattr(reset_drm, "ROOT", str(tmp_path))

    return lay_out


@pytest.mark.parametrize(
    ("modules", "modeset", "expected"),
    [
        ("nvidia 5 0 - Live 0x0\nnvidia_drm 81920 0 - Live 0x0\n", "N\n", (True, "off", 0, ())),
        ("nvidia_drm 81920 3 drm_ttm,x, Live 0x0\n", "Y\n", (True, "on", 3, ("drm_ttm", "x"))),
        ("nvidia_drm 81920 3 - Live 0x0\n", None, (True, "unknown", 3, ())),
        ("nvidia 5 0 - Live 0x0\n", None, (False, "unknown", 0, ())),
    ],
)
def test_read(kernel, modules, modeset, expected):
    kernel(modules, modeset)
    drm = reset_drm.read_drm()
    assert (drm.loaded, drm.modeset, drm.uses, drm.users) == expected


def test_label(kernel):
    kernel("nvidia_drm 81920 3 x Live 0x0\n", "Y")
    assert reset_drm.read_drm().label == "the kernel module nvidia_drm (modeset on, in use 3 times by x)"


def test_unload_and_load(kernel):
    kernel("nvidia_drm 81920 0 - Live 0x0\n")
    # It says that it is done, and the module is there.
    assert not reset_drm.unload(FakeRun({"rmmod nvidia_drm": ""})).ok
    assert "in use" in reset_drm.unload(FakeRun({"rmmod": Completed(1, err="Module is in use")})).message
    kernel("")
    run = FakeRun({"rmmod nvidia_drm": "", "modprobe nvidia_drm": ""})
    assert reset_drm.unload(run).ok and reset_drm.load(run).ok
    # Only this one: modprobe -r takes others along.
    assert run.calls == ["rmmod nvidia_drm", "modprobe nvidia_drm"]
    assert "modprobe nvidia_drm" in reset_drm.load(FakeRun({"modprobe": Completed(1, err="no")})).message
