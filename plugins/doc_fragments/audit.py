# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option of all modules that record what they do to a host."""

from __future__ import annotations


class ModuleDocFragment:
    """Where it is recorded."""

    DOCUMENTATION = r"""
options:
  audit_path:
    description:
      - File on the host in which is recorded who did what to it, when, on which evidence, and what came of it, one JSON
        object a line. An absolute path. See the guide C(docs/audit.md).
      - Its folder is made where only that is missing. The file is not written where somebody else than root, or the
        user of the task, could change it; then the task goes on, with a warning.
      - Events go to the journal as well, and with an empty text to the journal alone. So do those of a task without
        root, unless a file of its own is given.
    type: path
    default: /var/log/inferops/audit.jsonl
"""
