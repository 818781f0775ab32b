# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pytest plugin: few examples for each property.

`make unit` searches for a counterexample; here it is enough that the code runs on a version.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("matrix", max_examples=8, deadline=None, database=None)
settings.load_profile("matrix")
