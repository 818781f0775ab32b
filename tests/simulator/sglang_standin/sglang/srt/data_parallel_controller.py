# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller of several data-parallel replicas: the schedulers' parent.

A scheduler that fails tells its parent by SIGQUIT. This one has no handler for it and dies, its other schedulers die
with it, and the main process, which waits for answers from them, does not notice.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from sglang.srt.behaviour import Behaviour
from sglang.srt.engine import SchedulerGroup
from sglang.srt.processes import become, linger
from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)


def run_controller(server_args: ServerArgs, behaviour: Behaviour, channel: Any) -> None:
    """The process's whole life."""
    parent = multiprocessing.parent_process().pid
    time.sleep(behaviour.import_seconds)
    become("sglang::data_parallel_controller", dies_with_parent=not behaviour.outlive_parent)
    logging.basicConfig(level=server_args.log_level.upper(), format="[%(asctime)s] %(message)s", force=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT would leave a core file
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        group = SchedulerGroup(server_args, behaviour)
        if server_args.nnodes > 1:
            with suppress(EOFError, OSError):
                channel.recv()
            group.go()
        answer = {"max_total_num_tokens": group.wait_until_loaded(), "pids": group.pids}
    except Exception:
        logger.error("DataParallelController hit an exception: %s", traceback.format_exc())
        if os.getppid() == parent:
            os.kill(parent, signal.SIGQUIT)
        sys.exit(1)
    with suppress(OSError):
        channel.send(answer)
    try:
        channel.recv()
    except (EOFError, OSError):
        if behaviour.outlive_parent or os.getppid() != parent:
            linger(behaviour.orphan_seconds)
        os._exit(1)
    group.shut_down(15.0)
    os._exit(0)
