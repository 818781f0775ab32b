# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the waves of a rollout, and lets each begin or not; see the module of the same name for its options."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible
from ansible_collections.inferops.sglang.plugins.plugin_utils import rollout_words as words
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_facts import known_facts
from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_gate import (
    SERVING,
    Answer,
    decide,
    demands,
    read_answer,
    spread,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_inventory import (
    SETTINGS,
    HostVariables,
    in_groups,
    refuse_old_names,
    run_settings,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_plan import (
    KEEP,
    VACANT,
    Plan,
    as_facts,
    make_plan,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError

# What inventory and checks say of a host: nothing else is templated, as that costs time per host.
_VARIABLES = (
    *SETTINGS,
    "sglang_serial",
    "sglang_instance",
    "sglang_deploy_instance",
    "sglang_state_dir",
    "sglang_deploy_state_dir",
)
_FAILURES = ("sglang_deploy_failure", "sglang_deploy_not_routed")
_CHECKED = ("sglang_deploy_unchanged", "sglang_deploy_checked")
# Seconds between two rounds of questions while a wave waits.
_PAUSE = 5.0
_LONGEST_LINE = 2000  # characters
_NOTHING_PLANNED = (
    "plan: nothing was checked and planned for %s in this run, so nothing is stopped. Run the whole playbook: without "
    "--skip-tags check, --skip-tags always and --start-at-task."
)


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {
                "step": {"type": "str", "required": True, "choices": ["plan", "gate", "settle"]},
                "hosts": {"type": "list", "elements": "str", "required": True},
                "candidates": {"type": "list", "elements": "str", "default": []},
                "pattern": {"type": "raw", "default": "all"},
                "plan": {"type": "dict", "default": {}},
                "gate": {"type": "dict", "default": {}},
            }
        )
        variables = task_vars or {}
        step = {"plan": self._plan, "gate": self._gate, "settle": self._settle}[arguments["step"]]
        result.update(step(arguments, variables))
        result["changed"] = False
        return result

    def _plan(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """All waves, or why there can be none."""
        hosts: List[str] = arguments["hosts"]
        known = {host: self._read(variables, host, _VARIABLES, _CHECKED) for host in hosts}
        if any(self._read(variables, host, (), _FAILURES[:1]) for host in hosts):
            return {"plan": {}, "refused": {}}
        every: Sequence[str] = variables.get("groups", {}).get("all", ())
        for host in dict.fromkeys([*arguments["candidates"], *every]):
            known.setdefault(host, self._read(variables, host, _VARIABLES))
        try:
            refuse_old_names(known)
            settings = run_settings({host: known[host] for host in hosts})
            groups, asked = in_groups(hosts, arguments["candidates"], known, every)
            plan: Plan = make_plan(groups, settings["groups_at_a_time"])
        except RolloutError as error:
            return {"plan": {}, "refused": dict.fromkeys(hosts, str(error))}
        facts = {**as_facts(plan, asked), **settings, "pattern": arguments["pattern"]}
        _say("", *words.plan_lines(facts), "")
        return {"plan": facts, "refused": {}}

    def _gate(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """Open, further questions, or shut."""
        hosts, plan = arguments["hosts"], arguments["plan"]
        wave = _wave_of(plan, hosts)
        before: Mapping[str, Any] = arguments["gate"]
        started: float = before.get("started") or round(time.monotonic(), 3)
        number: int = before.get("round", 0)
        answers = {name: Answer(**known) for name, known in before.get("answers", {}).items()}
        answers.update(self._answers(variables, before))
        if self._task.check_mode:
            # What the waves before would have started would serve by now.
            answers.update((name, Answer(SERVING)) for name in _started_before(plan, wave))
        unlikely = set(variables.get("ansible_play_hosts_all", ())) - set(variables.get("ansible_play_hosts", ()))
        wanted = demands(plan, wave, sorted(unlikely))
        decision = decide(wanted, answers)
        if decision.shut:
            waited = time.monotonic() - started
            left = (0.0 if self._task.check_mode else plan["floor_timeout"]) - waited
            if left <= 0:
                refused = words.refusal(wave, decision.shut, answers, waited)
                touched = [host for host in hosts if host not in _kept(plan)]
                return _gate_result(False, wave, refused=dict.fromkeys(touched, refused))
            _say(words.waiting_line(wave, decision.shut, answers, left))
            time.sleep(min(_PAUSE, left))
            # What was true before the pause counts no more.
            answers = {}
            decision = decide(wanted, answers)
        here = [host for host in hosts if host not in unlikely]
        about = {unit["hosts"][0]: unit["ask"] for unit in _units(plan)}
        questions = {
            asker: [dict(about[name], host=name, round=number + 1, started=started) for name in asked]
            for asker, asked in spread(decision.ask, here or hosts).items()
        }
        return _gate_result(
            decision.is_open,
            wave,
            questions=questions,
            round=number + 1,
            started=started,
            answers={name: vars(answer) for name, answer in answers.items()},
        )

    def _answers(self, variables: Mapping[str, Any], before: Mapping[str, Any]) -> Dict[str, Answer]:
        """What the questions of the last round brought; those that brought nothing are unknown."""
        answers = {}
        for asker, questions in before.get("questions", {}).items():
            results = _mapping(variables["hostvars"].get(asker)).get("sglang_deploy_answers") or {}
            told = {
                item["question"]["host"]: item
                for item in results.get("results") or []
                if item.get("question") in questions
            }
            for question in questions:
                name = question["host"]
                if name in told:
                    answers[name] = read_answer(told[name], question["instance"])
                else:
                    answers[name] = Answer("unknown", "not_asked", "%s, which was to ask it, is out of reach" % asker)
        return answers

    def _settle(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """After a wave: whether the next one may come."""
        hosts, plan = arguments["hosts"], arguments["plan"]
        wave = _wave_of(plan, hosts)
        done = plan["hosts"][: sum(plan["sizes"][:wave])]
        failed = [host for host in done if self._read(variables, host, (), _FAILURES)]
        gone = set(variables.get("ansible_play_hosts_all", ())) - set(variables.get("ansible_play_hosts", ()))
        lost = [host for host in done if host in gone and host not in failed]
        refused = bool(_mapping(arguments["gate"].get("refused")))
        allowed = plan["max_failed"]
        # The hosts of one server fail together, and count once.
        bad = len([unit for unit in _units(plan) if not {*failed, *lost}.isdisjoint(unit["hosts"])])
        stop = refused or bad > allowed
        if bad and not refused:
            line = words.stop_line(failed, lost, allowed) if stop else words.going_on_line(failed, lost, allowed)
            _say("", line)
        last = wave == len(plan["sizes"])
        # Hosts that failed fail at the very end, too, where the run could go on; somebody must be there in any case.
        speakers = failed or [host for host in plan["hosts"] if host not in gone][:1]
        return {"stop": stop, "last": last, "not_proven": failed, "lost": lost, "speakers": speakers, "wave": wave}

    def _read(
        self, variables: Mapping[str, Any], host: str, wanted: Sequence[str], facts: Sequence[str] = ()
    ) -> HostVariables:
        """Some variables and facts of a host: those that are set, and not empty.  Raises AnsibleActionFail."""
        hostvars = variables["hostvars"]
        if host not in hostvars:
            raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
        of_host = hostvars[host]
        found = {}
        for name in wanted:
            if name not in of_host:
                continue
            try:
                value = of_host[name]
            except Exception as exc:
                raise AnsibleActionFail("%s of the host %s cannot be read: %s" % (name, host, exc)) from exc
            found[name] = value
        found.update(known_facts(of_host, facts))
        return {name: value for name, value in found.items() if value not in (None, "", {})}


def _gate_result(is_open: bool, wave: int, **more: Any) -> Dict[str, Any]:
    return {"open": is_open, "wave": wave, "questions": {}, "refused": {}, **more}


def _units(plan: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    return [unit for group in plan["groups"].values() for unit in group["units"]]


def _started_before(plan: Mapping[str, Any], wave: int) -> List[str]:
    return [unit["hosts"][0] for unit in _units(plan) if unit["fate"] == VACANT and unit["wave"] < wave]


def _kept(plan: Mapping[str, Any]) -> List[str]:
    return [host for unit in _units(plan) if unit["fate"] == KEEP for host in unit["hosts"]]


def _wave_of(plan: Mapping[str, Any], hosts: Sequence[str]) -> int:
    """The number of the wave that these hosts are of, from 1 on.  Raises AnsibleActionFail where none was planned."""
    planned: Sequence[str] = plan.get("hosts", ())
    if not hosts or hosts[0] not in planned:
        raise AnsibleActionFail(_NOTHING_PLANNED % (", ".join(hosts) or "these hosts"))
    position = planned.index(hosts[0])
    return next(number for number in range(1, len(plan["sizes"]) + 1) if position < sum(plan["sizes"][:number]))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _say(*lines: str) -> None:
    to_stderr = is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for line in lines:
        # It may quote a host, which must not move the terminal.
        Display().display(visible(line, _LONGEST_LINE), stderr=to_stderr)
