# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install the stand-in SGLang, with fakegpu, into a site-packages folder of an interpreter that has nvidia-ml-py.

install.py SITE_PACKAGES
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def install(target: Path) -> None:
    """Copy the package there. What an earlier call put there is replaced; anything else named sglang is left alone.

    :raises FileExistsError: when the folder holds another package of that name.
    """
    package = target / "sglang"
    if package.exists():
        if not (package / "srt" / "behaviour.py").exists():
            raise FileExistsError("{} is not the stand-in; it is left as it is".format(package))
        shutil.rmtree(str(package))
    target.mkdir(parents=True, exist_ok=True)
    shutil.copytree(str(HERE / "sglang_standin" / "sglang"), str(package), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(str(HERE / "fakegpu.py"), str(target / "fakegpu.py"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: install.py SITE_PACKAGES")
    install(Path(sys.argv[1]))
