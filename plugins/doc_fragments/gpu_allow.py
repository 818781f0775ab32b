# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may stay on a GPU."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that name processes which may stay."""

    DOCUMENTATION = r"""
options:
  allow_users:
    description:
      - Processes of these users (names or numeric ids) may stay on the GPUs, for example a cache that keeps model
        weights.
    type: list
    elements: str
    default: []
  allow_executables:
    description:
      - Processes that run one of these executables may stay, given as an absolute path or as a file name in any
        folder.
      - It is compared with C(/proc/PID/exe), so a Python program counts as its interpreter.
    type: list
    elements: str
    default: []
  allow_units:
    description:
      - Processes of these systemd units may stay, given as shell patterns (V(weight-cache@*.service)). V(.service)
        may be left out.
    type: list
    elements: str
    default: []
  allow_containers:
    description:
      - Processes in these containers or guests may stay, given as a name, an id, the start of a long id, or a shell
        pattern, each with or without the runtime before it (V(docker:weights), V(lxc:129)).
      - Names of docker and podman containers are asked of the engine.
    type: list
    elements: str
    default: []
"""
