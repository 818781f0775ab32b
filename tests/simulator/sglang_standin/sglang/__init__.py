# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the SGLang package: its command line, processes, ports and endpoints, without a model or a GPU."""

from sglang.version import __version__

__all__ = ["__version__"]
