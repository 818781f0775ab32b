# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, OK, WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.models_dir import (
    Model,
    check_draft_fits,
    inspect_model,
)


@pytest.fixture
def model(tmp_path):
    """Make a model's folder; returns its path."""

    def make(config=None, files=("model.safetensors", "tokenizer.json"), text=None):
        folder = tmp_path / "model"
        folder.mkdir()
        if config is not None or text is not None:
            (folder / "config.json").write_text(json.dumps(config) if text is None else text)
        for name in files:
            (folder / name).write_text("")
        return str(folder)

    return make


def look(path, **options):
    found, checks = inspect_model("model_path", path, **options)
    return found, [(check.status, check.message) for check in checks]


def test_a_complete_folder_passes(model):
    found, checks = look(model({"vocab_size": 5}), tokenizer=True)
    assert [status for status, _message in checks] == [OK]
    assert found.number("vocab_size") == 5


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda model: "/does/not/exist", "does not exist"),
        (lambda model: model(None) + "/model.safetensors", "is not a folder"),
        (lambda model: model(None), "config.json does not exist"),
        (lambda model: model(text="{"), "is not valid JSON"),
        (lambda model: model([1]), "is not a JSON object"),
        (lambda model: "./model", "neither an absolute path"),
        (lambda model: "a/b/c", "neither an absolute path"),
    ],
)
def test_refuses_what_is_no_model(model, make, part):
    ((status, message),) = look(make(model))[1]
    assert status == FAILED and part in message and message.startswith("model_path: ")


@pytest.mark.parametrize("path", ["meta-llama/Llama-3.1-8B", "gpt2", "s3://bucket/model"])
def test_warns_that_a_name_on_a_hub_is_not_checked(path):
    ((status, message),) = look(path)[1]
    assert status == WARNING and "not checked" in message


def test_warns_of_missing_weights_unless_none_are_needed(model):
    path = model({}, files=())
    assert [status for status, _message in look(path)[1]] == [WARNING]
    assert [status for status, _message in look(path, load_format="dummy")[1]] == [OK]


def test_warns_of_a_missing_tokenizer_only_where_one_is_needed(model):
    path = model({}, files=("a.safetensors",))
    assert [status for status, _message in look(path)[1]] == [OK]
    assert [status for status, _message in look(path, tokenizer=True)[1]] == [WARNING]


def test_refuses_a_download_that_is_not_complete(model, tmp_path):
    path = model({}, files=("model-1.safetensors",))
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    ((status, message),) = look(path)[1]
    assert status == FAILED and "2 of the files" in message and "model-2.safetensors" in message


def test_an_index_that_cannot_be_understood_is_left_to_sglang(model, tmp_path):
    path = model({})
    (tmp_path / "model" / "model.safetensors.index.json").write_text("[]")
    assert [status for status, _message in look(path)[1]] == [OK]


def test_a_gguf_file_is_a_model(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_text("")
    assert [status for status, _message in look(str(path))[1]] == [OK]


def test_numbers_of_multimodal_models_are_one_level_down():
    assert Model({"text_config": {"hidden_size": 64}}).number("hidden_size") == 64
    assert Model({"hidden_size": True}).number("hidden_size") is None


TARGET = {"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 64}
DRAFT = {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 100, "draft_vocab_size": 50, "hidden_size": 64}


def fit(algorithm="EAGLE3", target=None, **draft):
    config = {name: value for name, value in dict(DRAFT, **draft).items() if value is not None}
    checks = check_draft_fits(algorithm, Model(TARGET if target is None else target), Model(config))
    return [(check.status, check.message) for check in checks]


def test_a_draft_that_fits():
    assert [status for status, _message in fit()] == [OK]
    assert [status for status, _message in fit(hidden_size=32, target_hidden_size=64)] == [OK]
    assert [status for status, _message in fit(draft_vocab_size=None)] == [OK]


@pytest.mark.parametrize(
    ("draft", "part"),
    [
        ({"draft_vocab_size": 101}, "draft_vocab_size 101 is larger"),
        ({"hidden_size": 32}, "hidden_size is 32"),
        ({"target_hidden_size": 128}, "target_hidden_size is 128"),
    ],
)
def test_refuses_a_draft_that_cannot_work(draft, part):
    ((status, message),) = fit(**draft)
    assert status == FAILED and part in message


@pytest.mark.parametrize(
    ("algorithm", "draft", "part"),
    [
        ("EAGLE3", {"architectures": ["LlamaForCausalLMEagle"]}, "no EAGLE-3 draft"),
        ("EAGLE", {}, "set EAGLE3"),
        ("STANDALONE", {"architectures": ["Llama"], "vocab_size": 90}, "vocab_size is 90"),
    ],
)
def test_warns_of_a_draft_that_may_not_work(algorithm, draft, part):
    ((status, message),) = fit(algorithm, **draft)
    assert status == WARNING and part in message


def test_a_width_that_only_an_eagle3_draft_depends_on_is_not_judged_elsewhere():
    assert FAILED not in [status for status, _message in fit("STANDALONE", architectures=["Llama"], hidden_size=32)]


def test_says_nothing_of_what_it_cannot_see():
    assert check_draft_fits("EAGLE3", Model(None), Model(DRAFT)) == []
    assert [status for status, _message in fit(target={"architectures": ["X"]})] == [OK]
