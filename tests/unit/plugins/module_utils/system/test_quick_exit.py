# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gc

from ansible_collections.inferops.sglang.plugins.module_utils.system.quick_exit import leave_quickly


def test_nothing_is_left_to_be_looked_through():
    try:
        leave_quickly()
        assert gc.get_freeze_count() > 0
        assert len(gc.get_objects()) < gc.get_freeze_count()
    finally:
        gc.unfreeze()
