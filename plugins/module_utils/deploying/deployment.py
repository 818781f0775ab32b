# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A deployment on its host: which steps are taken in which order, and what has become of it."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import steps
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.steps import Step

_TOUCHED = "sglang_deploy_touched"
# What a part of a wait leaves for the next one.
_FOR_THE_REST = ("sglang_deploy_release", _TOUCHED)


class DeploymentFailed(Exception):
    """A step that failed: its name, and the result of its module."""

    def __init__(self, step: str, result: Mapping[str, Any]) -> None:
        super().__init__(str(result.get("msg") or "it gave no reason"))
        self.step = step
        self.result = result


class StillWaiting(Exception):
    """The server is not ready yet, and the time of this part is over.

    progress: how far it is.  resume: what the next part has to be given.
    """

    def __init__(self, progress: Mapping[str, Any], resume: Mapping[str, Any]) -> None:
        super().__init__()
        self.progress = progress
        self.resume = resume


class Deployment:
    """The steps on this host.

    settings and known: see arguments.py.  listens says whether anybody still waits for the end: where nobody does, what
    was begun is brought to its end, and nothing more is begun.  alone keeps others out while the host is changed.

    facts are what this run has found, by the names under which the role registers it; changed and diff are as Ansible
    has them.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        known: Mapping[str, Any],
        check_mode: bool,
        listens: Callable[[], bool] = lambda: True,
        alone: Callable[[], ContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.settings = settings
        self.facts: Dict[str, Any] = {}
        self.changed = False
        self.diff: List[Any] = []
        self._known = dict(known)
        self._check_mode = check_mode
        self._listens = listens
        self._alone = alone

    # -- before the old server is touched

    def rehearse(self, rollback: bool) -> None:
        """All that can go wrong before a server is stopped, while the old one still answers.  Raises DeploymentFailed.

        Where the instance runs exactly this already, that is all that is found.
        """
        self.facts.update(sglang_deploy_rollback=rollback, **{_TOUCHED: False})
        self._rehearse(steps.CHECK_KEPT if rollback else steps.CHECK, shows=True)
        self._rehearse(steps.GO_BACK if rollback else steps.WRITE)
        if not rollback:
            self._rehearse(steps.WAIT)
            del self.facts[steps.WAIT.register]
        unchanged = self._is_unchanged()
        self.facts["sglang_deploy_unchanged"] = unchanged
        if unchanged:
            return
        self._rehearse(steps.PLAN_RECLAIM)
        self._rehearse(steps.PROVE_FREE)
        self._refuse_blockers()
        self._refuse_other_instances()
        self._rehearse(steps.STOP)
        del self.facts[steps.STOP.register]

    def _rehearse(self, step: Step, shows: bool = False) -> None:
        """Take a step in check mode, which changes nothing.  shows: whether its differences are the deployment's."""
        self._run(step, check_mode=True, more={}, counts=False, shows=shows)

    def _is_unchanged(self) -> bool:
        """Also where nobody has proven it yet, as after a run that was interrupted."""
        released = self.facts["sglang_deploy_release"]
        return (
            not self.settings["force_restart"]
            and isinstance(self._checked().get("running"), dict)
            and not released["release"]["restart_needed"]
            and not released["files"]
        )

    def _refuse_blockers(self) -> None:
        """A holder that will not be ended keeps the new server from starting: found later, it costs the old one."""
        blockers: List[str] = self.facts["gpu_free_plan"]["blockers"]
        if blockers:
            self._refuse(
                "Refuse when a process that would not be ended holds a GPU",
                "The GPUs cannot be freed, so nothing was stopped. %s. End these processes yourself, have them ended "
                "(sglang_reclaim_users and the filters gpu_free_*), or let them stay (gpu_free_allow_users, "
                "_executables, _units or _containers, with gpu_free_allow_mib)." % "; ".join(blockers),
            )

    def _refuse_other_instances(self) -> None:
        own = "sglang-%s.service" % self._checked()["instance"]
        units = {
            str(process.get("unit") or "")
            for process in self.facts["gpu_free_plan"]["processes"]
            if process["action"] in ("would_terminate", "would_stop_service")
        }
        others = sorted(
            unit for unit in units if unit.startswith("sglang-") and unit.endswith(".service") and unit != own
        )
        if others:
            self._refuse(
                "Refuse to end the server of another instance",
                "%s uses GPUs that this instance would use, so nothing was stopped. Give each instance its own GPUs "
                "with sglang_gpus, or stop the other one first." % ", ".join(others),
            )

    # -- from the old server to the new one

    def replace(self, rollback: bool, return_after: float = 0, resume: Optional[Mapping[str, Any]] = None) -> None:
        """Stop, free, prove free, deploy and prove.  Raises DeploymentFailed and StillWaiting.

        A wait that takes longer than return_after (seconds; 0: as long as it takes) is left, and goes on with resume.
        What was there before is not brought back here: whoever asked for this must know first.
        """
        if resume is not None:
            self._known.update(resume["facts"])
        else:
            self.facts[_TOUCHED] = False
            with self._alone():
                self._stop_and_free()
                self._take(steps.GO_BACK if rollback else steps.WRITE)
                # In check mode the release of a first deployment is not there yet.
                if self._check_mode and not self.facts["sglang_deploy_release"]["release"]["previous_id"]:
                    return
                self._take(steps.START)
        self._wait(return_after, resume)
        self._take(steps.REMEMBER)

    def _stop_and_free(self) -> None:
        # From here on nobody knows what serves, until something is proven.
        self.facts[_TOUCHED] = not self._check_mode
        self._take(steps.STOP)
        if self.settings["gpu_free_reclaim"]:
            self._take(steps.RECLAIM)
        self._take(steps.PROVE_FREE)

    def _wait(self, return_after: float, resume: Optional[Mapping[str, Any]]) -> None:
        more: Dict[str, Any] = {"return_after": return_after}
        if resume is not None:
            more["resume"] = resume["wait"]
        self._take(steps.WAIT, more)
        ready = self.facts[steps.WAIT.register]
        if ready.get("waiting"):
            del self.facts[steps.WAIT.register]
            so_far = {**self._known, **self.facts}
            rest = {name: so_far[name] for name in _FOR_THE_REST if name in so_far}
            raise StillWaiting(ready.get("progress") or {}, {"wait": ready["resume"], "facts": rest})

    # -- what both need

    def _take(self, step: Step, more: Optional[Mapping[str, Any]] = None) -> None:
        """Take a step as the run does.  Raises DeploymentFailed."""
        self._run(step, self._check_mode, more or {}, counts=True, shows=True)

    def _run(self, step: Step, check_mode: bool, more: Mapping[str, Any], counts: bool, shows: bool) -> None:
        """Take a step, and keep its result, also where it failed in the middle.  Raises DeploymentFailed.

        counts, shows: whether what it changes and its differences are the deployment's.
        """
        if not self._listens():
            self._refuse(step.name, "Nobody waits for this run any more, so nothing more was begun.")
        result = step.run(self.settings, {**self._known, **self.facts}, check_mode, more)
        self.facts[step.register] = result
        diff = result.pop("diff", None) or []
        if shows:
            self.diff.extend(diff if isinstance(diff, list) else [diff])
        self.changed = self.changed or (counts and bool(result.get("changed")))
        if result.get("failed"):
            raise DeploymentFailed(step.name, result)

    def _refuse(self, step: str, why: str) -> None:
        raise DeploymentFailed(step, {"failed": True, "msg": why})

    def _checked(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts["sglang_deploy_checked"]["sglang"]
        return found
