# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a deployment: a module of this collection each, under the names that the role gives them.

A module is imported when its step comes: compiling it is most of what a step costs.  Each import is written out, since
Ansible sends a host what it finds in such statements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import arguments
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.step_module import Main, run_module


def _preflight() -> Main:
    from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_preflight import main

    return main


def _release() -> Main:
    from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_release import main

    return main


def _process() -> Main:
    from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_process import main

    return main


def _wait_ready() -> Main:
    from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_wait_ready import main

    return main


def _reclaim() -> Main:
    from ansible_collections.inferops.sglang.plugins.module_utils.modules.gpu_reclaim import main

    return main


def _wait_free() -> Main:
    from ansible_collections.inferops.sglang.plugins.module_utils.modules.gpu_wait_free import main

    return main


@dataclass(frozen=True)
class Step:
    """A step: its name for people, under which name its result is known, its module, and what that is called with."""

    name: str
    register: str
    module: str
    load: Callable[[], Main]
    arguments: Callable[[arguments.Settings, arguments.Facts], Dict[str, Any]]

    def run(
        self, settings: Mapping[str, Any], facts: Mapping[str, Any], check_mode: bool, more: Mapping[str, Any]
    ) -> Dict[str, Any]:
        """The result of its module.  more: options that are not of the deployment."""
        given = {**self.arguments(settings, facts), **more}
        return run_module(self.module, self.load(), given, check_mode)


CHECK = Step(
    "Check the configuration on the host", "sglang_deploy_checked", "sglang_preflight", _preflight, arguments.check
)
CHECK_KEPT = Step(
    "Check the release on the host", "sglang_deploy_checked", "sglang_preflight", _preflight, arguments.check_kept
)
WRITE = Step("Write the release", "sglang_deploy_release", "sglang_release", _release, arguments.write)
GO_BACK = Step(
    "Make the chosen release the current one", "sglang_deploy_release", "sglang_release", _release, arguments.go_back
)
STOP = Step("Stop the server", "sglang_stop_result", "sglang_process", _process, arguments.stop)
PLAN_RECLAIM = Step("Plan what would be ended", "gpu_free_plan", "gpu_reclaim", _reclaim, arguments.reclaim)
RECLAIM = Step("End what holds the GPUs", "gpu_free_reclaimed", "gpu_reclaim", _reclaim, arguments.reclaim)
PROVE_FREE = Step("Prove that the GPUs are free", "gpu_free_proof", "gpu_wait_free", _wait_free, arguments.prove_free)
START = Step("Start the server", "sglang_deploy_started", "sglang_process", _process, arguments.start)
WAIT = Step(
    "Wait until the server is ready, and prove its configuration",
    "sglang_deploy_ready",
    "sglang_wait_ready",
    _wait_ready,
    arguments.wait,
)
REMEMBER = Step(
    "Remember the release as proven", "sglang_deploy_proven", "sglang_release", _release, arguments.remember
)
