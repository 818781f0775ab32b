# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m sglang serve …``"""

from sglang.cli.main import main

if __name__ == "__main__":
    main()
