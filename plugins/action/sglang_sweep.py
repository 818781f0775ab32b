# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans a sweep, deals its configurations out, and keeps what was measured; see the module of the same name."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.prompts import (
    PromptsError,
    read_prompts,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    environment_from,
    version_tuple,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_argv
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible, visible_value
from ansible_collections.inferops.sglang.plugins.plugin_utils import sweep_plan, sweep_progress, sweep_words, whole_file
from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import analysis, decision
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_plan import SweepError
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import NAME as PROFILES_FILE
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import as_yaml
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report import plots
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_store import (
    FAILED,
    MEASURED,
    PROVEN,
    Store,
    SweepStoreError,
)

_LONGEST_LINE = 2000  # characters
_LONGEST_MESSAGE = 1000  # characters
# What a sweep must have in common with the one in its folder.
_COMMON = ("model", "prompts", "concurrencies", "repeats", "max_running_requests", "benchmark", "inventory")
# What the inventory gives all configurations, by what people set it with.
_BASE = {
    "speculative": "sglang_spec_*",
    "environment": "sglang_environment",
    "extra_args": "sglang_extra_args",
    "max_running_requests": "sglang_max_running_requests",
    "mem_fraction_static": "sglang_mem_fraction_static",
}


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {
                "step": {
                    "type": "str",
                    "required": True,
                    "choices": ["plan", "begin", "next", "record", "adaptive", "finish", "close"],
                },
                "dir": {"type": "path", "required": True},
                "hosts": {"type": "list", "elements": "str", "default": []},
                "options": {"type": "dict", "default": {}},
                "plan": {"type": "dict", "default": {}},
                "key": {"type": "str", "default": ""},
                "row": {"type": "dict", "default": {}},
                "point": {"type": "dict", "default": {}},
                "adopted": {"type": "str", "default": ""},
                "deadline": {"type": "float", "default": 0.0},
            }
        )
        step = getattr(self, "_" + arguments["step"])
        try:
            result.update(step(Store(arguments["dir"]), arguments, task_vars or {}))
        except (SweepError, SweepStoreError, PromptsError, whole_file.FileError) as error:
            raise AnsibleActionFail(visible(str(error), _LONGEST_LINE)) from error
        result.setdefault("changed", False)
        return result

    # -- before anything is touched

    def _plan(self, store: Store, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """What is to be measured, and which configurations are to be checked."""
        hosts, options = arguments["hosts"], arguments["options"]
        store.refuse_foreign()
        no_plots = plots.missing() if options.get("html") else ""
        if no_plots:
            raise SweepError(f"{no_plots} Or set sglang_sweep_html to false: the figures are written without it.")
        found = {host: self._fact(variables, host, "sglang_sweep_found") for host in hosts}
        bases = {host: found[host].get("base") or {} for host in hosts}
        unlike = sweep_plan.differences(
            {host: {label: base.get(name) for name, label in _BASE.items()} for host, base in bases.items()}
        )
        if unlike:
            raise SweepError(_unlike(unlike))
        first = found[hosts[0]]
        base, profiles = bases[hosts[0]], first.get("profiles") or {}
        expanded = sweep_plan.expand(options, base, profiles)
        limit = sweep_plan.common_limit(expanded)
        numbers = sweep_plan.concurrencies(options.get("concurrencies"), limit)
        finally_, expected = _finally(options)
        sweep = {
            "name": str(options.get("name") or os.path.basename(store.folder)),
            "model": str(first.get("model") or ""),
            "prompts": read_prompts(str(options.get("prompts"))).to_dict(),
            "concurrencies": numbers,
            "repeats": _at_least_one("sglang_sweep_repeats", options.get("repeats")),
            "max_running_requests": limit,
            "benchmark": dict(options.get("benchmark") or {}),
            "inventory": _inventory(base, first),
            "expected_concurrency": expected,
            "finally": finally_,
            "adaptive": bool(options.get("adaptive")),
        }
        stored: Dict[str, Any] = {}
        if store.exists():
            stored = store.plan()["sweep"]
            sweep_plan.refuse_other_sweep(
                {name: stored.get(name) for name in _COMMON}, {name: sweep[name] for name in _COMMON}, store.folder
            )
        rows = [item.as_row() for item in sweep_plan.on_hosts(expanded, hosts)]
        known = {row["key"]: row for row in store.results()["configurations"]} if stored else {}
        with_points = [{**row, **_kept(known.get(row["key"], {}))} for row in rows]
        left = sweep_progress.points_left(with_points, numbers, bool(options.get("retry_failed")))
        to_check = [row for row in rows if row["key"] in left]
        if not options.get("check_all", True):
            to_check = _first_of_each(to_check, hosts)
        return {"plan": {"sweep": sweep, "configurations": rows, "left": left, "check": to_check}}

    def _begin(self, store: Store, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """After the checks: refuse, or write the plan down and show it."""
        hosts, options, plan = arguments["hosts"], arguments["options"], arguments["plan"]
        sweep, rows = dict(plan["sweep"]), list(plan["configurations"])
        left: Dict[str, List[int]] = dict(plan["left"])
        found = {host: self._fact(variables, host, "sglang_sweep_found") for host in hosts}
        stored = store.plan() if store.exists() else {"sweep": {}, "configurations": []}
        sweep["alike"], notes = self._alike(variables, found, stored["sweep"].get("alike"))
        version = str(sweep["alike"].get("SGLang") or "")
        if sweep["adaptive"]:
            sweep_plan.refuse_adaptive(version, version_tuple(version))
        refused = self._refused(variables, plan, hosts)
        _refuse_hopeless(rows, refused, left)
        for key in refused:
            left.pop(key, None)
        known = {host: store.host(host) for host in hosts}
        originals = {}
        for host in hosts:
            by_hand = bool(self._fact(variables, host, "sglang_sweep_checked").get("unmanaged"))
            originals[host] = sweep_progress.original_of({**found[host], "unmanaged": by_hand}, _owed(known[host]))
        sweep["original"] = {**(stored["sweep"].get("original") or {}), **originals}
        sweep["hosts"] = list(dict.fromkeys([*(stored["sweep"].get("hosts") or []), *hosts]))
        sweep["started"] = stored["sweep"].get("started") or _now()
        # The last time that it was gone on with.
        sweep["started_again"] = _now()
        sweep["ended"] = None
        sweep["versions"] = version
        write = not self._task.check_mode and bool(options.get("write", True))
        if write:
            store.make()
            with store.locked():
                keys = [row["key"] for row in rows]
                store.take({**_me(), "keys": keys, "started": _now()}, _is_alive(store.owner()))
                if options.get("retry_failed"):
                    _forget_failed(store, rows)
                planned = {row["key"]: row for row in [*stored["configurations"], *rows]}
                store.write_plan(sweep, list(planned.values()))
                for key in planned:
                    store.drop_claim(key)
                for host in hosts:
                    store.write_host(host, {**known[host], "original": originals[host], "restored": False})
                for row in rows:
                    if row["key"] in refused:
                        host = row["host"] or hosts[0]
                        store.write_row(row["key"], {**row, **_failed(refused[row["key"]]), "host": host})
        known_rows = {row["key"]: row for row in store.results()["configurations"]} if store.exists() else {}
        shown = [{**row, "state": known_rows.get(row["key"], {}).get("state")} for row in rows]
        starts = [sweep_progress.last_start(found[host]) for host in hosts]
        estimate = sweep_progress.first_estimate(
            len(left), sum(map(len, left.values())), next((start for start in starts if start is not None), None)
        )
        reasons = {key: _short(failure["message"]) for key, failure in refused.items()}
        here = {**sweep, "original": originals}
        _say("", *sweep_words.plan_lines(here, shown, left, reasons, estimate, sweep["adaptive"]), *notes, "")
        limit = float(options.get("stop_after") or 0)
        return {
            "left": left,
            "most_turns": len(rows),
            "deadline": time.time() + limit if limit else 0.0,
            "changed": write,
        }

    def _alike(
        self, variables: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], stored: Any
    ) -> Tuple[Dict[str, Any], List[str]]:
        """What all hosts of the sweep have in common, and what is to be said about the rest.  Raises SweepError."""
        traits: Dict[str, Dict[str, Any]] = {}
        drivers: Dict[str, Dict[str, Any]] = {}
        for host, facts in found.items():
            checked = self._fact(variables, host, "sglang_sweep_checked")
            if not checked:
                continue
            gpus = [gpu for gpu in facts.get("gpus") or [] if gpu.get("uuid") in (checked.get("gpus") or [])]
            traits[host] = {
                "GPUs": [gpu.get("name") for gpu in gpus],
                "SGLang": checked.get("version"),
                "model": facts.get("model"),
                "config.json of the model": facts.get("model_sha256"),
            }
            drivers[host] = {"driver": facts.get("driver")}
        everything = {**traits, **({"the sweep in the folder": stored} if stored else {})}
        unlike = sweep_plan.differences(everything)
        if unlike:
            raise SweepError(_unlike(unlike))
        notes = ["! The drivers differ: %s" % line for line in sweep_plan.differences(drivers)]
        return dict(next(iter(everything.values()), {})), notes

    def _refused(
        self, variables: Mapping[str, Any], plan: Mapping[str, Any], hosts: Sequence[str]
    ) -> Dict[str, Dict[str, str]]:
        """Why a configuration was refused on the hosts, by key.  Raises SweepError where hosts do not agree."""
        refused: Dict[str, Dict[str, str]] = {}
        said = {host: self._fact(variables, host, "sglang_sweep_refused") for host in hosts}
        for row in plan["check"]:
            asked = [row["host"]] if row["host"] else list(hosts)
            against = [host for host in asked if row["key"] in said[host]]
            if against and len(against) < len(asked):
                raise SweepError(
                    "%s refuses %s, and %s does not, so they are not alike: %s Mend it, or leave a host out with "
                    "--limit. Nothing was touched."
                    % (
                        ", ".join(against),
                        row["name"],
                        ", ".join(host for host in asked if host not in against),
                        said[against[0]][row["key"]]["message"],
                    )
                )
            if against:
                refused[row["key"]] = said[against[0]][row["key"]]
        return refused

    # -- while it runs

    def _next(self, store: Store, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """The configuration that this host measures now, and the concurrencies that it lacks."""
        host = variables["inventory_hostname"]
        # What a host has begun that gave up is for the others.
        alive = [name for name in arguments["hosts"] if not self._fact(variables, name, "sglang_sweep_failure", str)]
        nothing: Dict[str, Any] = {"configuration": {}, "concurrencies": []}
        with store.locked():
            _own(store)
            rows, numbers = self._rows(store)
            # A server that is not there in time would be loaded for nothing.
            start = sweep_progress.start_seconds(rows) or 0.0
            if arguments["deadline"] and time.time() + start >= arguments["deadline"]:
                return nothing
            left = sweep_progress.points_left(rows, numbers)
            claims = {row["key"]: store.claim(row["key"]) for row in rows}
            row = sweep_progress.choose(rows, left, claims, host, alive)
            if row is None:
                return nothing
            key = row["key"]
            missing = left[key]
            if row.get("points") and row.get("host") not in ("", host):
                # Of a host that is gone: one configuration's points are of one host.
                store.forget_points(key)
                missing = numbers
            now = time.time()
            store.write_claim(key, {"host": host, "since": now, "last": now})
        planned = {name: value for name, value in row.items() if name not in ("points", "message", "reason")}
        return {"configuration": {**planned, "host": host}, "concurrencies": missing}

    def _record(self, store: Store, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """Keep a row, a point, or which release was made of a server that was taken over."""
        host, key = variables["inventory_hostname"], arguments["key"]
        with store.locked():
            _own(store)
            if arguments["adopted"]:
                self._adopted(store, host, arguments["adopted"])
            if not key:
                return {"changed": True}
            now = time.time()
            claim = store.claim(key)
            took = round(max(0.0, now - float(claim.get("last") or now)), 1)
            if arguments["row"]:
                row = self._whole_row(store, key, host, {**arguments["row"], "took": took}, variables)
                store.write_row(key, row)
                store.write_claim(key, {**claim, "host": host, "last": now})
                if row["state"] == PROVEN:
                    store.write_host(host, {**store.host(host), "last": key})
                lines = [sweep_words.row_line(row)]
            if arguments["point"]:
                point = _checked_point(arguments["point"], took)
                store.write_point(key, point)
                store.write_claim(key, {**claim, "host": host, "last": now})
                lines = [self._point_line(store, key, point, len(arguments["hosts"]))]
        _say(*lines)
        return {"changed": True}

    def _whole_row(
        self, store: Store, key: str, host: str, row: Mapping[str, Any], variables: Mapping[str, Any]
    ) -> Dict[str, Any]:
        """The planned row with what was found when it was deployed."""
        planned = next(item for item in store.plan()["configurations"] if item["key"] == key)
        before = store.row(key)
        found = self._fact(variables, host, "sglang_sweep_found")
        told: Dict[str, Any] = visible_value(dict(row))
        uuids = told.pop("gpus", None) or []
        gpus = [gpu for gpu in found.get("gpus") or [] if gpu.get("uuid") in uuids]
        command = told.get("command") or []
        effective = told.get("effective") or {}
        return {
            **planned,
            "host": host,
            "reason": "",
            **told,
            "message": _short(told.get("message")),
            "command": redact_argv([str(word) for word in command]),
            "max_running_requests": effective.get("max_running_requests", planned.get("max_running_requests")),
            "hardware": {
                "gpu": gpus[0].get("name") if gpus else "",
                "count": len(gpus),
                "driver": found.get("driver") or "",
                "memory_total_mib": gpus[0].get("memory_total_mib") if gpus else None,
            },
            "recorded": _now(),
            # Of a server that an earlier run had started, that run knows.
            **(_start_of(before) if told.get("ready_after") is None and before.get("host") == host else {}),
        }

    def _adopted(self, store: Store, host: str, release: str) -> None:
        known = store.host(host)
        if (known.get("original") or {}).get("kind") != sweep_progress.UNMANAGED:
            return
        original = {"kind": sweep_progress.RELEASE, "release": release}
        store.write_host(host, {**known, "original": original})
        plan = store.plan()
        sweep = plan["sweep"]
        sweep["original"] = {**(sweep.get("original") or {}), host: original}
        store.write_plan(sweep, plan["configurations"])

    def _point_line(self, store: Store, key: str, point: Mapping[str, Any], hosts: int) -> str:
        rows, numbers = self._rows(store)
        row = next(item for item in rows if item["key"] == key)
        left = sweep_progress.points_left(rows, numbers)
        text = sweep_words.left_text(
            sum(map(len, left.values())), len(left), sweep_progress.seconds_left(rows, left, hosts)
        )
        return sweep_words.point_line(row, point, sweep_progress.ratio_to_baseline(rows, row, point), text)

    # -- at the end

    def _adaptive(self, store: Store, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """The configuration that switches by load, computed from the points of the others."""
        nothing: Dict[str, Any] = {"configuration": {}, "host": ""}
        alive = arguments["hosts"]
        with store.locked():
            _own(store)
            plan = store.plan()
            if not plan["sweep"].get("adaptive"):
                return nothing
            rows, numbers = self._rows(store)
            left = sweep_progress.points_left(rows, numbers)
            if left:
                _say("adaptive: not computed yet, as %d of the others' points are left." % sum(map(len, left.values())))
                return nothing
            results = store.results()
            old = [row for row in results["configurations"] if row.get("adaptive")]
            if any(row["state"] != "pending" or row["points"] for row in old):
                # Only the fixed ones go into it, and these are all measured: it would be the same again.
                row = old[-1]
            else:
                row = self._computed(results, alive, arguments["options"].get("profiles") or {})
                kept = [item for item in plan["configurations"] if not item.get("adaptive")]
                store.write_plan(plan["sweep"], [*kept, _planned(row)])
                if row["state"] == FAILED:
                    store.write_row(row["key"], row)
                    _say(sweep_words.row_line(row))
            owner = store.owner()
            store.take({**owner, "keys": [*(owner.get("keys") or []), row["key"]]}, alive=False)
            if row["key"] not in sweep_progress.points_left([row], numbers):
                return nothing
        host = row.get("host") if row.get("host") in alive else alive[0]
        return {"configuration": _planned(row), "host": host, "changed": True}

    @staticmethod
    def _computed(results: Mapping[str, Any], alive: Sequence[str], profiles: Mapping[str, Any]) -> Dict[str, Any]:
        """The row of the adaptive configuration, failed where there can be none."""
        told = analysis.analyse(results)
        wanted = told["adaptive"]
        row: Dict[str, Any] = {"name": sweep_plan.ADAPTIVE, "key": "adaptive0000", "baseline": False, "adaptive": True}
        row.update(host=alive[0], settings={}, environment={}, points=[])
        if not wanted.get("config"):
            return {**row, **_failed({"reason": "not_computed", "message": wanted.get("reason") or "no reason"})}
        keys = {item["configuration"]: item["key"] for item in told["configurations"]}
        base = next(item for item in results["configurations"] if item["key"] == keys[wanted["base"]])
        try:
            item = sweep_plan.adaptive_configuration(base, wanted["config"], int(wanted["num_steps"]), profiles)
        except SweepError as error:
            return {**row, **_failed({"reason": "not_computed", "message": str(error)})}
        host = base.get("host") if base.get("host") in alive else alive[0]
        return {**item.as_row(), "host": host, "state": "pending", "points": [], "computed": wanted.get("reason")}

    def _finish(self, store: Store, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """What each host is to run in the end."""
        hosts, options = arguments["hosts"], arguments["options"]
        with store.locked():
            _own(store)
            plan = store.plan()
            for row in plan["configurations"]:
                store.drop_claim(row["key"])
            rows, numbers = self._rows(store)
            left = sweep_progress.points_left(rows, numbers)
            known = {host: store.host(host) for host in hosts}
            results = store.results()
        finally_, expected = _finally(options)
        lines = []
        chosen: Dict[str, Any] = {}
        if finally_ != "original" and left:
            lines.append("Not everything is measured, so what ran before comes back.")
        elif finally_ == "best":
            chosen, reason = _best(results, int(expected or 0))
            if chosen:
                lines.append("Best for %s requests at a time: %s. %s" % (expected, chosen["name"], reason))
            else:
                lines.append("No configuration is the best (%s), so what ran before comes back." % reason)
        targets = {}
        for host in hosts:
            last = known[host].get("last")
            row = chosen
            if finally_ == "keep" and not left:
                row = next((item for item in rows if item["key"] == last), {})
            if row:
                targets[host] = {"kind": "configuration", "configuration": _planned(row), "release": ""}
            else:
                original = known[host].get("original") or {"kind": sweep_progress.STOPPED}
                targets[host] = {"configuration": {}, "release": "", **original}
        _say(*lines)
        return {"targets": targets, "left": left}

    def _close(self, store: Store, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """Write down how it ended, and let others sweep in the folder."""
        hosts = arguments["hosts"]
        with store.locked():
            _own(store)
            rows, numbers = self._rows(store)
            left = sweep_progress.points_left(rows, numbers)
            for host in hosts:
                if not self._fact(variables, host, "sglang_sweep_not_restored", str).strip():
                    store.write_host(host, {**store.host(host), "restored": True})
            plan = store.plan()
            if not left:
                store.write_plan({**plan["sweep"], "ended": _now()}, plan["configurations"])
            results = store.results()
            if any(row["points"] for row in results["configurations"]):
                told = {**results, "analysis": analysis.analyse(results)}
                whole_file.replace("sglang_sweep_dir", os.path.join(store.folder, PROFILES_FILE), as_yaml(told))
            store.release()
        failed = [row for row in rows if row["state"] == FAILED]
        measured = sum(1 for row in rows for point in row["points"] if point["state"] == MEASURED)
        lines = ["%d points measured in %s." % (measured, store.folder)]
        if failed:
            lines.append("Did not start: %s." % ", ".join("%s (%s)" % (row["name"], row["reason"]) for row in failed))
        if left:
            count = sum(map(len, left.values()))
            lines.append("%d points are left. Run the same again: it goes on with them." % count)
        _say("", *lines, "")
        return {"left": left, "failed_configurations": [row["name"] for row in failed], "changed": True}

    # -- common

    def _rows(self, store: Store) -> Tuple[List[Dict[str, Any]], List[int]]:
        """The rows of this run with their points, and the concurrencies."""
        results = store.results()
        keys = store.owner().get("keys") or []
        rows = [row for row in results["configurations"] if row["key"] in keys]
        return rows, list(results["sweep"]["concurrencies"])

    @staticmethod
    def _fact(variables: Mapping[str, Any], host: str, name: str, kind: type = dict) -> Any:
        """A fact of a host, empty where it has none of the kind.  Raises AnsibleActionFail for an unknown host."""
        hostvars = variables["hostvars"]
        if host not in hostvars:
            raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
        value = hostvars[host].get(name)
        return value if isinstance(value, Mapping if kind is dict else kind) else kind()


def _finally(options: Mapping[str, Any]) -> Tuple[str, Optional[int]]:
    """What is to run in the end, and the load it is for.  Raises SweepError."""
    finally_ = str(options.get("finally") or "original")
    if finally_ not in ("original", "best", "keep"):
        raise SweepError("sglang_sweep_finally is %r: give original, best or keep." % finally_)
    given = options.get("expected_concurrency")
    if given in (None, ""):
        if finally_ == "best":
            raise SweepError(
                "sglang_sweep_finally is best, and best for how many requests is not said: give "
                "sglang_sweep_expected_concurrency."
            )
        return finally_, None
    return finally_, _at_least_one("sglang_sweep_expected_concurrency", given)


def _at_least_one(option: str, value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdigit() or int(text) < 1:
        raise SweepError("%s is %r: give a whole number from 1 up." % (option, value))
    return int(text)


def _inventory(base: Mapping[str, Any], found: Mapping[str, Any]) -> Dict[str, Any]:
    """What the inventory gives all configurations, as far as it makes points comparable."""
    return {
        "tp_size": found.get("tp_size"),
        "extra_args": redact_argv([str(word) for word in base.get("extra_args") or []]),
        "mem_fraction_static": base.get("mem_fraction_static") or None,
        "environment": sweep_plan.without_secrets(environment_from(base.get("environment") or {})),
    }


def _unlike(lines: Sequence[str]) -> str:
    return (
        "The hosts are not alike, and points of both could not be compared. %s. Leave some out with --limit, or sweep "
        "them in folders of their own. Nothing was touched." % "; ".join(lines)
    )


def _kept(row: Mapping[str, Any]) -> Dict[str, Any]:
    """What a folder knows of a row that is planned again."""
    return {name: row[name] for name in ("state", "points", "host") if name in row}


def _first_of_each(rows: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> List[Mapping[str, Any]]:
    found = []
    for host in hosts:
        mine = [row for row in rows if row["host"] in ("", host)]
        found += mine[:1]
    return list({row["key"]: row for row in found}.values())


def _refuse_hopeless(
    rows: Sequence[Mapping[str, Any]], refused: Mapping[str, Mapping[str, str]], left: Mapping[str, Any]
) -> None:
    """Raise SweepError where what is refused leaves nothing to compare."""
    for row in rows:
        if row["key"] in refused and row["baseline"]:
            raise SweepError("Nothing was touched. The baseline is refused: %s" % refused[row["key"]]["message"])
    others = [row for row in rows if not row["baseline"] and row["key"] in left]
    if others and all(row["key"] in refused for row in others):
        told = "; ".join("%s: %s" % (row["name"], refused[row["key"]]["message"]) for row in others)
        raise SweepError("Nothing was touched. All configurations are refused. %s" % told)


def _owed(known: Mapping[str, Any]) -> Optional[Mapping[str, Any]]:
    """What an earlier run found on a host and did not put back."""
    original = known.get("original")
    return original if original and not known.get("restored") else None


def _forget_failed(store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    whole = {row["key"]: row for row in store.results()["configurations"]} if store.exists() else {}
    for row in rows:
        known = whole.get(row["key"], {})
        if known.get("state") == FAILED:
            store.write_row(row["key"], {"state": "pending"})
        for point in known.get("points") or []:
            if point["state"] != MEASURED:
                store.write_point(row["key"], {"concurrency": point["concurrency"]})


def _checked_point(point: Mapping[str, Any], took: float) -> Dict[str, Any]:
    concurrency, state = str(point.get("concurrency")), point.get("state")
    if not concurrency.isdigit() or state not in (MEASURED, FAILED):
        raise AnsibleActionFail("point: %r is none: it needs concurrency and state." % dict(point))
    told: Dict[str, Any] = visible_value(dict(point))
    # Templates of older ansible-cores make a text of a number.
    told["concurrency"] = int(concurrency)
    return {**told, "message": _short(told.get("message")), "took": took, "recorded": _now()}


def _failed(failure: Mapping[str, Any]) -> Dict[str, Any]:
    return {"state": FAILED, "reason": failure.get("reason") or "refused", "message": _short(failure.get("message"))}


def _start_of(row: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: row[name] for name in ("ready_after", "took") if row.get(name) is not None}


def _planned(row: Mapping[str, Any]) -> Dict[str, Any]:
    """A row as it is in the plan."""
    names = [*sweep_plan.Configuration("").as_row(), "computed"]
    return {name: row[name] for name in names if name in row}


def _best(results: Mapping[str, Any], concurrency: int) -> Tuple[Dict[str, Any], str]:
    told = decision.best_for(results, concurrency)
    label = told.get("configuration")
    keys = {item["configuration"]: item["key"] for item in analysis.analyse(results)["configurations"]}
    row = next((item for item in results["configurations"] if item["key"] == keys.get(label)), {})
    return row, str(told.get("reason") or "")


def _own(store: Store) -> None:
    """Raise SweepStoreError where another run has taken the folder meanwhile."""
    owner, me = store.owner(), _me()
    if any(owner.get(name) != me[name] for name in me):
        raise SweepStoreError(
            "sglang_sweep_dir: %s is not this run's any more: another one sweeps in it, or its run.json was removed. "
            "Run the same again." % store.folder
        )


def _me() -> Dict[str, Any]:
    """The process of this run: the parent of the one that runs a task."""
    pid = os.getppid()
    identity = ProcFs().identity(pid)
    return {"pid": pid, "start_ticks": identity.start_time if identity else 0, "node": os.uname().nodename}


def _is_alive(owner: Mapping[str, Any]) -> bool:
    """Whether the process of an owner on this controller still runs."""
    pid, ticks = owner.get("pid"), owner.get("start_ticks")
    if not isinstance(pid, int) or not isinstance(ticks, int):
        return False
    if ticks:
        return ProcFs().alive(ProcessIdentity(pid, ticks))
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _short(text: Any) -> str:
    return visible(" ".join(str(text or "").split()), _LONGEST_MESSAGE)


def _say(*lines: str) -> None:
    to_stderr = is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for line in lines:
        # It may quote a host, which must not move the terminal.
        Display().display(visible(line, _LONGEST_LINE), stderr=to_stderr)
