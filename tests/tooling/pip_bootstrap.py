# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put pip into a virtual environment, from the pip wheel that lies beside this file.

ansible-test runs it as it would run the script of that purpose which it downloads otherwise: with the arguments of
``pip install`` in ``sys.argv``, and two options more that pip itself does not know.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOT_FOR_PIP = {"--no-setuptools", "--no-wheel"}


def main() -> int:
    """Install what is asked for, by the pip in the wheel."""
    sys.path.insert(0, str(next(HERE.glob("pip-*.whl"))))
    from pip._internal.cli.main import main as pip

    wanted = [argument for argument in sys.argv[1:] if argument not in NOT_FOR_PIP]
    return pip(["install", "--no-index", f"--find-links={HERE}", *wanted])


if __name__ == "__main__":
    sys.exit(main())
