# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for all unit tests."""

from __future__ import annotations

import contextlib
import json
import os
import time
from unittest import mock

import hypothesis
import pytest
from ansible.module_utils import basic
from ansible.module_utils.common import warnings

from ansible_collections.inferops.sglang.plugins.module_utils.system import audit

# For `make test`; elsewhere each property is tried four times as often.
hypothesis.settings.register_profile("brief", max_examples=25, deadline=None)


@contextlib.contextmanager
def _arguments(args):
    """Hand arguments to AnsibleModule, whichever way this ansible-core takes them."""
    try:
        from ansible.module_utils.testing import patch_module_args
    except ImportError:  # ansible-core 2.18
        raw = json.dumps({"ANSIBLE_MODULE_ARGS": args}).encode()
        with mock.patch.object(basic, "_ANSIBLE_ARGS", raw):
            yield
    else:
        with patch_module_args(args):
            yield


def _recording_in(folder):
    """Let the audit log be there, and the journal nowhere: those of this machine are nobody's business."""
    return mock.patch.multiple(
        audit, DEFAULT_PATH=str(folder / "audit.jsonl"), JOURNAL_SOCKET=str(folder / "journal.socket")
    )


@contextlib.contextmanager
def _on_a_host():
    """Let warnings go into the result, also where a test of a plugin has made this process a controller."""
    try:
        from ansible.module_utils import _internal
    except ImportError:  # ansible-core 2.18
        yield
    else:
        with mock.patch.object(_internal, "is_controller", False, create=True):
            yield


@pytest.fixture
def childless():
    """Wait until this process has no child left; fails where one lives on.

    A session ends its child and does not wait for it, so one of an earlier test may still be on its way out.
    """

    def wait(seconds=5.0):
        deadline = time.monotonic() + seconds
        while True:
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            assert time.monotonic() < deadline, "a child lives on"
            time.sleep(0.005)

    return wait


@pytest.fixture
def run_module(capfd, tmp_path, tmp_path_factory):
    """Run a module's real main(); the call returns (exit status, result as a dict)."""

    def run(module, args, check=False, diff=False):
        internal = {
            "_ansible_remote_tmp": str(tmp_path),
            "_ansible_keep_remote_files": False,
            "_ansible_check_mode": check,
            "_ansible_diff": diff,
        }
        capfd.readouterr()
        # A module has a process of its own, without the warnings of the one before.
        getattr(warnings, "_global_warnings", {}).clear()
        recording = _recording_in(tmp_path_factory.getbasetemp() / "audit")
        with recording, _on_a_host(), _arguments({**args, **internal}):
            with pytest.raises(SystemExit) as stop:
                module.main()
        out, _err = capfd.readouterr()
        result = json.loads(out.strip().splitlines()[-1])
        # For ansible-core 2.22 itself: what to hide.  The controller takes it out before anybody sees the result.
        result.pop("_ansible_new_secrets", None)
        return stop.value.code, result

    return run
