# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that name one SGLang server on a host."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that all modules for SGLang servers share."""

    DOCUMENTATION = r"""
options:
  instance:
    description:
      - Name of the server on its host.
      - It names the unit C(sglang-INSTANCE.service) and the folders of the server.
      - Lower-case letters, digits, V(-) and V(_), at most 48 characters, beginning with a letter or a digit.
    type: str
    default: main
  state_dir:
    description: Folder in which the releases of all servers of the host are kept. An absolute path.
    type: path
    default: /var/lib/sglang
  manager:
    description:
      - Who runs the server.
      - V(systemd) means a unit of its own.
      - V(process) means a process of its own, for hosts and containers without systemd.
    type: str
    choices: [systemd, process]
    default: systemd
"""
