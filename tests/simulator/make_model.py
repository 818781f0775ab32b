# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a tiny model folder for the stand-in SGLang, or for checks that look at model folders.

make_model.py DIR [--draft] [--standin '{"load_seconds": 3}']
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

COMMON = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "head_dim": 64,
    "num_attention_heads": 8,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}

TARGET = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, "num_key_value_heads": 4}

DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "draft_vocab_size": 2048,
}


def make_model(
    folder: Path, draft: bool = False, standin: Optional[Dict[str, Any]] = None, config: Optional[Dict[str, Any]] = None
) -> Path:
    """Write the folder; ``standin`` says how the server is to behave, ``config`` overrides parts of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", {**COMMON, **(DRAFT if draft else TARGET), **(config or {})})
    _write(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192})
    vocabulary = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "w": 3}
    _write(folder / "tokenizer.json", {"version": "1.0", "model": {"type": "WordLevel", "vocab": vocabulary}})
    (folder / "model.safetensors").write_bytes(_safetensors())
    if standin is not None:
        _write(folder / "standin.json", standin)
    return folder


def _write(file: Path, content: Dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n")


def _safetensors() -> bytes:
    """A valid file with one small tensor."""
    header = json.dumps({"stub": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + bytes(8)


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description="Make a tiny model folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draft", action="store_true", help="an EAGLE-3 draft instead of a target")
    parser.add_argument("--standin", type=json.loads, help="content of standin.json")
    options = parser.parse_args(argv)
    make_model(options.folder, options.draft, options.standin)


if __name__ == "__main__":
    main()
