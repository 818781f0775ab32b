# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of a server from its start until it is proven, as codes.

While nobody listens only the log tells them apart; from then on what the server answers does.
"""

from __future__ import annotations

STARTING = "starting"  # nothing is known yet: it imports its modules and reads its arguments
CONNECTING = "connecting"  # its ranks look for each other
LOADING_WEIGHTS = "loading_weights"
LOADING_DRAFT = "loading_draft"  # the weights of the draft model
ALLOCATING_CACHE = "allocating_cache"
COMPILING_KERNELS = "compiling_kernels"
CAPTURING_GRAPHS = "capturing_graphs"
WARMING_UP = "warming_up"  # it listens and answers 503
READY = "ready"  # /health answers 200
GENERATING = "generating"  # it is asked to generate
PROVING = "proving"  # it has generated; its configuration is compared
SOAKING = "soaking"  # it serves many requests at a time

# Nobody listens in these.
LOADING = (
    STARTING,
    CONNECTING,
    LOADING_WEIGHTS,
    LOADING_DRAFT,
    ALLOCATING_CACHE,
    COMPILING_KERNELS,
    CAPTURING_GRAPHS,
)
ALL = (*LOADING, WARMING_UP, READY, GENERATING, PROVING, SOAKING)
