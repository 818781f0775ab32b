# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a sweep on the controller: one file a point, each written whole, so that a run may be killed any time.

`sweep.json` has what is measured and the configurations in their order, `configurations/KEY.json` a configuration's row
without its points, `points/KEY/CONCURRENCY.json` a point.  `hosts/HOST.json` has what ran on a host before, to go back
to, `claims/KEY.json` which host measures a configuration, and `run.json` which process sweeps.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.plugin_utils import whole_file

FORMAT = 1
PROVEN, FAILED, PENDING = "proven", "failed", "pending"
MEASURED = "measured"
_OPTION = "sglang_sweep_dir"
# Names of hosts are not for everybody.
_MODE = 0o700
# A run on another controller that has written nothing for so long (s) is taken for dead: longer than a server loads.
_DEAD_AFTER = 3600.0
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SweepStoreError(ValueError):
    """A folder that cannot be used; the message names the option, the file and the remedy."""


class Store:
    """One folder.  Every method raises SweepStoreError where a file cannot be read or written."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(os.path.expanduser(folder))

    # -- the whole

    def exists(self) -> bool:
        """Whether a sweep was begun in the folder."""
        return os.path.exists(self._path("sweep.json"))

    def refuse_foreign(self) -> None:
        """Raise where the folder cannot become, or be, one of a sweep; nothing is made."""
        if os.path.isdir(self.folder):
            if not self.exists() and any(not name.startswith(".") for name in os.listdir(self.folder)):
                raise SweepStoreError(
                    "%s: %s holds other files. Give a folder of its own, which is made if it is not there."
                    % (_OPTION, self.folder)
                )
            writable = self.folder
        else:
            if os.path.exists(self.folder):
                raise SweepStoreError("%s: %s is a file. Give a folder." % (_OPTION, self.folder))
            writable = os.path.dirname(self.folder)
            while not os.path.exists(writable):
                writable = os.path.dirname(writable)
        if not os.path.isdir(writable) or not os.access(writable, os.W_OK | os.X_OK):
            raise SweepStoreError(
                "%s: %s cannot be written: %s may not be written to. Give another folder."
                % (_OPTION, self.folder, writable)
            )

    def make(self) -> None:
        """Make the folder."""
        try:
            for name in ("", "configurations", "points", "hosts", "claims"):
                os.makedirs(self._path(name), mode=_MODE, exist_ok=True)
        except OSError as error:
            raise SweepStoreError(
                "%s: %s cannot be made: %s. Give another folder." % (_OPTION, self.folder, error.strerror)
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold off the other processes of the run; the folder must be there."""
        try:
            descriptor = os.open(self._path(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SweepStoreError("%s: %s: %s." % (_OPTION, self._path(".lock"), error.strerror)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    # -- who sweeps

    def take(self, owner: Mapping[str, Any], alive: bool) -> None:
        """Make a run the owner of the folder.  alive: whether the process of `owned_by()` still runs, if that is known.

        Raises where another one sweeps in it.  Call it locked.
        """
        other = self.owner()
        if other and not _same(other, owner):
            here = other.get("node") == owner.get("node")
            recent = time.time() - os.stat(self._path("run.json")).st_mtime < _DEAD_AFTER
            if alive if here else recent:
                raise SweepStoreError(
                    "%s: another run sweeps in %s, PID %s on %s. Wait for its end, or give another folder.%s"
                    % (
                        _OPTION,
                        self.folder,
                        other.get("pid", "?"),
                        other.get("node", "?"),
                        "" if here else " If it is dead, remove %s." % self._path("run.json"),
                    )
                )
        self._write("run.json", dict(owner))

    def owner(self) -> Dict[str, Any]:
        """The run that took the folder last; empty where none did, or it has ended."""
        return self._read("run.json") or {}

    def release(self) -> None:
        """Let other runs sweep in the folder."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path("run.json"))

    # -- plan and hosts

    def plan(self) -> Dict[str, Any]:
        """`sweep` and `configurations`, as `write_plan` got them."""
        plan = self._read("sweep.json")
        if not plan or plan.get("format") != FORMAT or not isinstance(plan.get("sweep"), dict):
            raise SweepStoreError(
                "%s: %s cannot be read as the plan of a sweep. Give another folder; what was measured stays in %s."
                % (_OPTION, self._path("sweep.json"), self._path("points"))
            )
        rows = plan.get("configurations")
        plan["configurations"] = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return plan

    def write_plan(self, sweep: Mapping[str, Any], configurations: List[Dict[str, Any]]) -> None:
        """Replace the plan."""
        self._write("sweep.json", {"format": FORMAT, "sweep": dict(sweep), "configurations": configurations})

    def host(self, name: str) -> Dict[str, Any]:
        """What is known of a host; empty where it is new."""
        path = self._name("hosts", name)
        known = self._read(path)
        if known is None and os.path.exists(self._path(path)):
            # What ran before stands nowhere else.
            raise SweepStoreError(
                "%s: %s cannot be read, which says what ran on %s before the sweep. Put it back, or restart what is to "
                "run, and remove the file." % (_OPTION, self._path(path), name)
            )
        return known or {}

    def write_host(self, name: str, known: Mapping[str, Any]) -> None:
        """Replace what is known of a host."""
        self._write(self._name("hosts", name), dict(known))

    # -- rows and points

    def row(self, key: str) -> Dict[str, Any]:
        """A configuration's row as it was recorded; empty where it was not."""
        return self._read(self._name("configurations", key)) or {}

    def write_row(self, key: str, row: Mapping[str, Any]) -> None:
        """Replace a row."""
        self._write(self._name("configurations", key), dict(row))

    def point(self, key: str, concurrency: int) -> Dict[str, Any]:
        """A point; empty where it was not measured, or its file is torn or somebody else's."""
        point = self._read(os.path.join("points", _safe(key), "%d.json" % concurrency)) or {}
        return point if point.get("concurrency") == concurrency and isinstance(point.get("state"), str) else {}

    def write_point(self, key: str, point: Mapping[str, Any]) -> None:
        """Replace a point."""
        folder = os.path.join("points", _safe(key))
        os.makedirs(self._path(folder), mode=_MODE, exist_ok=True)
        self._write(os.path.join(folder, "%d.json" % point["concurrency"]), dict(point))

    def forget_points(self, key: str) -> None:
        """Remove a configuration's points, which are measured again."""
        folder = self._path(os.path.join("points", _safe(key)))
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            os.unlink(os.path.join(folder, name))

    def claim(self, key: str) -> Dict[str, Any]:
        """Who measures a configuration; empty where nobody does."""
        return self._read(self._name("claims", key)) or {}

    def write_claim(self, key: str, claim: Mapping[str, Any]) -> None:
        """Replace a claim."""
        self._write(self._name("claims", key), dict(claim))

    def drop_claim(self, key: str) -> None:
        """Nobody measures it any more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(self._name("claims", key)))

    # -- all of it

    def results(self) -> Dict[str, Any]:
        """Everything in one, without an analysis: the rows in their order, each with its points, those rising."""
        plan = self.plan()
        return {
            "format": FORMAT,
            "sweep": plan["sweep"],
            "configurations": [self._whole_row(planned) for planned in plan["configurations"]],
        }

    def _whole_row(self, planned: Mapping[str, Any]) -> Dict[str, Any]:
        key = str(planned.get("key", ""))
        row = {"state": PENDING, "reason": "", "message": "", **planned, **self.row(key)}
        folder = self._path(os.path.join("points", _safe(key)))
        names = os.listdir(folder) if os.path.isdir(folder) else []
        numbers = sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        points = [self.point(key, number) for number in numbers]
        return {**row, "points": [point for point in points if point]}

    # -- files

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @staticmethod
    def _name(folder: str, name: str) -> str:
        return os.path.join(folder, _safe(name) + ".json")

    def _read(self, name: str) -> Optional[Dict[str, Any]]:
        """A file's object, None where there is none, or it holds something else."""
        try:
            with open(self._path(name), encoding="utf-8") as stream:
                value = json.load(stream)
        except FileNotFoundError:
            return None
        except (UnicodeDecodeError, ValueError, RecursionError):
            return None
        except OSError as error:
            raise SweepStoreError("%s: %s cannot be read: %s." % (_OPTION, self._path(name), error.strerror)) from error
        return value if isinstance(value, dict) else None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, indent=1, sort_keys=False, default=str, allow_nan=False) + "\n"
        try:
            whole_file.replace(_OPTION, self._path(name), text)
        except whole_file.FileError as error:
            raise SweepStoreError(str(error)) from error


def read_results(folder: str) -> Dict[str, Any]:
    """The results of the sweep in a folder, as `Store.results` has them.  Raises SweepStoreError."""
    store = Store(folder)
    if not store.exists():
        raise SweepStoreError("%s holds no sweep: there is no sweep.json in it." % store.folder)
    return store.results()


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in ("pid", "start_ticks", "node"))


def _safe(name: str) -> str:
    """A name that stays in its folder; one that would not is written in another way."""
    if _SAFE.fullmatch(name):
        return name
    return "_" + name.encode("utf-8").hex()
