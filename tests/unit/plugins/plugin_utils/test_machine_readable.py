# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which outputs of Ansible are one document."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs


@pytest.mark.parametrize("callback", ["json", "ansible.posix.json", "ansible.posix.jsonl", "junit"])
def test_documents(callback):
    assert is_for_programs(callback)


@pytest.mark.parametrize("callback", ["default", "ansible.builtin.default", "minimal", "oneline", "awx_display", None])
def test_what_people_read(callback):
    assert not is_for_programs(callback)
