# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates for unit tests; see make_certificate of the simulator."""

from __future__ import annotations

import pathlib
import sys

import pytest

pytest.importorskip("cryptography", reason="certificates are made with cryptography, which ansible-core brings along")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "simulator"))

from make_certificate import Pair, make_certificate

__all__ = ["Pair", "make_certificate"]
