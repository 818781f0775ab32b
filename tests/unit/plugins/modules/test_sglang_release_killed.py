# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module is ended by SIGKILL before each single thing that it does to the file system, and then run again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import traceback
from datetime import datetime, timedelta

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_release
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import read_current, read_last_good
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang import installation

pytestmark = pytest.mark.long

TOUCHES = {"os.rename", "os.remove", "os.symlink", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.utime"}
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}|\.removed-.*")
A, B = "worker = 'a'\n", "worker = 'b'\n"


def touches(event, arguments, root):
    """Whether an audited operation changes something below a folder."""
    if event == "open":
        path, _mode, flags = arguments
        return isinstance(flags, int) and flags & os.O_CREAT and str(path).startswith(root)
    return event in TOUCHES and (not isinstance(arguments[0], (str, os.PathLike)) or root in str(arguments[:2]))


class Host:
    """All files of one instance and of the SGLang that it uses, in one folder."""

    def __init__(self, folder, run_module):
        self.folder = folder / "host"
        self.saved = folder / "saved"
        self._run_module = run_module
        names = ("state_dir", "etc_dir", "unit_dir")
        self.paths = InstancePaths("main", **{name: str(self.folder / name) for name in names})
        self.sglang = installation.Installation(self.folder / "site-packages")

    def arguments(self, state, **options):
        """The arguments of the module."""
        found = {name: getattr(self.paths, name) for name in ("state_dir", "etc_dir", "unit_dir")}
        return dict(found, state=state, **options)

    def release(self, number):
        """The arguments for one of two configurations that differ in everything."""
        text = (A, B)[number]
        stored = self.sglang.patch(text)
        patch = {name: stored[name] for name in ("target", "path", "sha256_before")}
        return self.arguments(
            "present",
            command=["/usr/bin/python3", "x", str(number)],
            files={f"{number}.json": "{}"},
            patches=[dict(patch, content=text)],
            secret_args={"api-key": "k-s3cr3t-0"} if number == 0 else {},
        )

    def run(self, arguments):
        """Run the module to its end."""
        code, result = self._run_module(sglang_release, arguments)
        assert code == 0, result
        return result

    def run_until(self, number, arguments):
        """Run the module in a process that ends before its `number`th touch; False where it came to its end."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = self._doomed(number, arguments)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _pid, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return True
        assert os.WEXITSTATUS(status) == 0
        return False

    def _doomed(self, number, arguments):
        root, count = str(self.folder), [0]

        def hook(event, given):
            if touches(event, given, root):
                count[0] += 1
                if count[0] == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        code, _result = self._run_module(sglang_release, arguments)
        return code

    def save(self):
        """Remember how everything is."""
        shutil.copytree(self.folder, self.saved, symlinks=True)

    def bring_back(self):
        """Make everything as it was remembered."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder, symlinks=True)

    def live(self):
        """What a server would be started from."""
        current = read_current(self.paths)
        found = {name: (self.paths.current_link / name).read_text() for name in current.files}
        for path in (self.paths.unit_file, self.paths.environment_file, self.paths.secret_args_file):
            found[path.name] = path.read_text() if path.exists() else None
        return dict(found, content=current.content(), package=self.sglang.read())

    def half_done(self):
        """What nobody needs: temporary files, and releases that are not whole."""
        temporary = [str(path) for path in self.folder.rglob("*") if TEMPORARY.fullmatch(path.name)]
        folders = self.paths.releases_dir.iterdir()
        return temporary + [str(path) for path in folders if not (path / "release.json").exists()]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A minute goes by between two runs, so that releases sort as they were made."""

    class Clock(datetime):
        minutes = 0

        @classmethod
        def now(cls, tz=None):
            cls.minutes += 1
            return datetime(2026, 11, 30, 10, tzinfo=tz) + timedelta(minutes=cls.minutes)

    monkeypatch.setattr(sglang_release, "datetime", Clock)


@pytest.fixture
def host(tmp_path, run_module):
    found = Host(tmp_path, run_module)
    found.run(found.release(0))
    found.run(found.arguments("proven"))
    return found


def whole(host):
    """The links name whole releases, and each file of the installation is one of three."""
    for release in (read_current(host.paths), read_last_good(host.paths)):
        folder = host.paths.release_dir(release.id)
        assert all((folder / name).exists() for name in release.files)
        assert all((folder / "patches" / patch["sha256_after"]).exists() for patch in release.patches)
    assert host.sglang.path(installation.WORKER).read_text() in (installation.ORIGINALS[installation.WORKER], A, B)


@pytest.mark.parametrize("following", ["the same", "restored"])
def test_present(host, following):
    old = host.live()
    host.save()
    host.run(host.release(1))
    new = host.live()
    number, killed = 0, True
    while killed:
        number += 1
        host.bring_back()
        killed = host.run_until(number, host.release(1))
        whole(host)
        if following == "restored":
            host.run(host.arguments("restored"))
        else:
            host.run(host.release(1))
        assert host.live() == (new if following == "the same" else old), number
        host.run(host.arguments("proven"))
        assert host.half_done() == [], number
    assert number > 20


@pytest.mark.parametrize("following", ["previous", "the present one"])
def test_restored(host, following):
    old = host.live()
    host.run(host.release(1))
    host.run(host.arguments("proven"))
    new = host.live()
    host.save()
    number, killed = 0, True
    while killed:
        number += 1
        host.bring_back()
        killed = host.run_until(number, host.arguments("restored", release="previous"))
        whole(host)
        if following == "previous":
            host.run(host.arguments("restored", release="previous"))
        else:
            host.run(host.release(1))
        assert host.live() == (old if following == "previous" else new), number
        host.run(host.arguments("proven"))
        assert host.half_done() == [], number
    assert number > 10


def test_proven(host):
    for failed in ("2", "3"):
        host.run(host.arguments("present", command=["/usr/bin/python3", "x", failed]))
    host.run(host.release(1))
    host.save()
    number, killed = 0, True
    while killed:
        number += 1
        host.bring_back()
        killed = host.run_until(number, host.arguments("proven", keep=1, proof={"accept_length": 2.5}))
        whole(host)
        listed = host.run(host.arguments("inspected"))["releases"]
        assert not any("broken" in entry for entry in listed)
        host.run(host.arguments("proven", keep=1, proof={"accept_length": 2.5}))
        assert host.half_done() == []
        now, failed, before = host.run(host.arguments("inspected"))["releases"]
        assert (now["current"], now["last_good"], now["accept_length"]) == (True, True, 2.5)
        assert (failed["proven"], before["proven"]) == (False, True)
    assert number > 8


def test_the_very_first_one(tmp_path, run_module):
    host = Host(tmp_path, run_module)
    host.save()
    number, killed = 0, True
    while killed:
        number += 3  # it makes many folders, one as the other
        host.bring_back()
        killed = host.run_until(number, host.release(0))
        host.run(host.release(0))
        host.run(host.arguments("proven"))
        assert host.half_done() == [] and host.sglang.path(installation.WORKER).read_text() == A
    assert number > 15
