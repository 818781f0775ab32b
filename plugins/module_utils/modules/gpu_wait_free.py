# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module gpu_wait_free does; plugins/modules/gpu_wait_free.py has its options."""

from __future__ import annotations

import os
import time
from typing import Any, List, Tuple, Type

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.keepers import container_names, own_supervisors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import FREE, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import (
    EVERYTHING,
    KNOWN,
    Look,
    Observer,
    select,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import (
    change_result,
    look_result,
    not_free,
    warnings_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.waiting import (
    TIMEOUT,
    Timeline,
    WaitResult,
    samples_of,
    wait_until_free,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.quick_exit import leave_quickly


def wait(module: AnsibleModule, observer: Observer, limits: Limits) -> Tuple[WaitResult, Look]:
    """Wait (in check mode: look once); returns how it ended and the last look.

    Who merely has a GPU open is searched for at the start, while there is time, so that the end of the
    wait is not delayed by it; and again only where there is something to explain.
    """
    looks: List[Look] = []

    def sample() -> Any:
        looks[:] = [observer.look()]
        return samples_of(looks[0], limits)

    if module.check_mode:
        look = observer.look(EVERYTHING, limits)
        timeline = Timeline()
        timeline.add(0.0, samples_of(look, limits))
        return WaitResult(FREE, "", 0.0, None, 1, timeline), look
    result = wait_until_free(
        sample,
        timeout=module.params["timeout"],
        stable_for=module.params["stable_for"],
        interval=module.params["interval"],
        clock=time.monotonic,
        sleep=time.sleep,
    )
    return result, observer.explain(looks[0], limits, KNOWN if result.outcome == FREE else EVERYTHING)


def failure_message(params: dict[str, Any], result: WaitResult, look: Look, limits: Limits) -> str:
    """Why the wait failed: each GPU that is not free, with who holds it."""
    sentences = not_free(look, limits)
    if result.outcome == TIMEOUT:
        return "After %.1f s not all of the %d selected GPUs have been free for %g s%s. %s" % (
            result.elapsed,
            len(look.readings),
            params["stable_for"],
            ": " + result.why if result.why else "",
            " ".join(sentences),
        )
    return "Waiting longer is pointless (after %.1f s): %s." % (result.elapsed, result.why.rstrip("."))


def run(module: AnsibleModule, session: Any, procfs: ProcFs, limits: Limits) -> None:
    """Wait, and leave the module with the result."""
    targets = select(session, module.params["gpus"], module.params["expected_count"])
    # An engine is not asked while polling, unless an option needs its names.
    names = container_names(lambda: own_supervisors(procfs)) if module.params["allow_containers"] else None
    observer = Observer(session, procfs, targets, container_name=names)
    options.check_baseline(module.params, observer.look(EVERYTHING).uuids)
    ended, look = wait(module, observer, limits)
    for warning in warnings_of(look, root=os.geteuid() == 0):
        module.warn(warning)
    result = {
        "changed": False,
        "elapsed": round(ended.elapsed, 3),
        "free_after": None if ended.free_after is None else round(ended.free_after, 3),
        "samples": ended.samples,
        "timeline": [change_result(change) for change in ended.timeline.changes],
        "timeline_dropped": ended.timeline.dropped,
        **look_result(session, look, limits),
    }
    leave_quickly()
    if ended.outcome != FREE:
        message = failure_message(module.params, ended, look, limits)
        module.fail_json(msg=message.strip(), reason=ended.outcome, **result)
    module.exit_json(**result)


def main(module_class: Type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module; module_class makes it out of its options."""
    module = module_class(
        argument_spec={
            **options.selection_spec(),
            **options.free_spec(),
            **options.wait_spec(),
            **options.allow_spec(),
        },
        mutually_exclusive=options.mutually_exclusive(),
        supports_check_mode=True,
    )
    procfs = ProcFs()
    try:
        options.check_selection(module.params)
        options.check_free(module.params)
        options.check_wait(module.params)
        options.check_allow(module.params)
        limits = options.limits_from(module.params, Allowance(options.who_from(module.params, "allow")))
        with open_session(module.params["nvml_timeout"], procfs, module.params["reader"]) as session:
            run(module, session, procfs, limits)
    except PynvmlMissing as exc:
        module.fail_json(msg=missing_required_lib(DISTRIBUTION), reason="pynvml_missing", exception=exc.trace)
    except GpuError as exc:
        module.fail_json(msg=str(exc), reason=exc.failure.code)
