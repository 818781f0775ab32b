# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model folder says of itself."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List


class ModelConfig:
    """The parts of a model folder's ``config.json`` that the server looks at.

    :raises OSError: when the folder or the file is missing.
    :raises ValueError: when the file is no JSON object.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        file = os.path.join(path, "config.json")
        if not os.path.isfile(file):
            raise OSError("{} does not appear to have a file named config.json.".format(path))
        with open(file) as handle:
            self.values: Dict[str, Any] = json.load(handle)
        if not isinstance(self.values, dict):
            raise ValueError("It looks like the config file at '{}' is not a valid JSON file.".format(file))

    @property
    def architectures(self) -> List[str]:
        return list(self.values.get("architectures") or ["Unknown"])

    @property
    def model_type(self) -> str:
        return str(self.values.get("model_type", "llama"))

    @property
    def hidden_size(self) -> int:
        return int(self.values.get("hidden_size", 0))

    @property
    def context_length(self) -> int:
        return int(self.values.get("max_position_embeddings", 4096))
