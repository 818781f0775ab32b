# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a router's list says, and what of it makes the same worker again."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.workers import (
    attributes_of,
    parse_worker,
    payload,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.routers.fake_router import SMG, row

URL = "http://10.0.0.5:30000"


def own_labels(item, **labels):
    """The same worker with labels that somebody gave it."""
    name = "labels" if "labels" in item else "metadata"
    return {**item, name: {**item[name], **labels}}


@pytest.mark.parametrize("dialect", ["sglang-router", "smg"])
def test_an_entry_is_read(dialect):
    worker = parse_worker(row(URL, 7, dialect))
    assert (worker.url, worker.model, worker.kind, worker.healthy, worker.draining) == (
        *(URL, "llama", "regular"),
        *(True, False),
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"status": "draining"}, (False, True)),
        ({"status": "Draining", "is_healthy": False}, (False, True)),
        ({"is_healthy": False}, (False, False)),
        ({"is_healthy": "yes"}, (False, False)),
        ({"is_healthy": None}, (False, False)),
    ],
)
def test_only_what_gets_requests_is_healthy(more, expected):
    worker = parse_worker({**row(URL, 7, SMG), **more})
    assert (worker.healthy, worker.draining) == expected


@pytest.mark.parametrize(
    ("more", "model"),
    [
        ({"model_id": None}, ""),
        ({"model_id": "unknown"}, ""),
        ({"model_id": None, "models": [{"id": "qwen"}]}, "qwen"),
        ({"model_id": None, "models": "qwen"}, ""),
        ({"model_id": "bad\x1b[31m"}, "bad\\x1b[31m"),
    ],
)
def test_its_model(more, model):
    assert parse_worker({**row(URL, 7), **more}).model == model


@pytest.mark.parametrize("item", [None, "x", {}, {"id": 5, "url": URL}, {"id": "a", "url": None}])
def test_what_is_no_entry(item):
    with pytest.raises(ValueError, match="no id or no url"):
        parse_worker(item)


def test_an_url_that_nobody_understands_is_somebody_elses():
    worker = parse_worker(row("unix:/run/worker\x1b", 7))
    assert worker.url == "unix:/run/worker\\x1b"
    assert worker.place.port == 0


# -- what makes it again


def test_what_the_router_has_read_from_the_server_is_left_out():
    assert attributes_of(row(URL, 7)) == {
        "priority": 50,
        "cost": 1.0,
        "worker_type": "regular",
        "disable_health_check": False,
    }
    assert attributes_of(row(URL, 7, SMG)) == {
        "priority": 50,
        "cost": 1.0,
        "worker_type": "regular",
        "runtime_type": "sglang",
        "http2": False,
        "max_connection_attempts": 20,
    }


@pytest.mark.parametrize("dialect", ["sglang-router", "smg"])
def test_what_somebody_gave_it_is_kept(dialect):
    item = own_labels(row(URL, 7, dialect, priority=7, cost=2.5), tier="gold", priority="7")
    found = attributes_of({**item, "worker_type": "prefill", "bootstrap_port": 9001, "health": {"timeout_secs": 3}})
    assert found["labels"] == {"tier": "gold"}
    assert (found["priority"], found["cost"], found["worker_type"]) == (7, 2.5, "prefill")
    assert (found["bootstrap_port"], found["health"]) == (9001, {"timeout_secs": 3})


def test_a_model_that_is_not_the_servers_own_is_kept():
    assert attributes_of(row(URL, 7, model_id="gold/llama"))["model_id"] == "gold/llama"
    several = [{"id": "llama"}, {"id": "llama-lora"}]
    assert attributes_of(row(URL, 7, SMG, models=several))["models"] == several
    renamed = [{"id": "gold"}]
    assert attributes_of(row(URL, 7, SMG, models=renamed, model_id="gold"))["models"] == renamed
    aliased = [{"id": "llama", "aliases": ["l"]}]
    assert attributes_of(row(URL, 7, SMG, models=aliased))["models"] == aliased


def test_a_field_that_only_a_later_release_has_is_kept():
    found = attributes_of(row(URL, 7, http_pool={"timeout_secs": 90}, zone="b", weather={"rain": 1}, queue=[1]))
    assert (found["http_pool"], found["zone"]) == ({"timeout_secs": 90}, "b")
    # Of what is larger it cannot be told whether somebody gave it or it holds for the moment.
    assert not {"weather", "queue", "engine_load"} & set(found)


def test_each_dialect_gets_its_own_word_for_the_runtime():
    assert attributes_of(row(URL, 7, runtime_type="vllm"))["runtime"] == "vllm"
    assert attributes_of(row(URL, 7, SMG, runtime_type="vllm"))["runtime_type"] == "vllm"


@pytest.mark.parametrize(("dialect", "fixed"), [("sglang-router", True), ("smg", False)])
def test_who_does_not_take_ranks_out(dialect, fixed):
    assert parse_worker(row(URL + "@1", 7, dialect)).fixed is fixed
    assert parse_worker(row(URL, 7, dialect)).fixed is False


def test_the_ranks_are_made_anew():
    item = row(URL + "@0", 7, SMG, dp_base_url=URL, dp_rank=0, dp_size=4)
    assert not {"dp_base_url", "dp_rank", "dp_size", "url", "id"} & set(attributes_of(item))
    assert parse_worker(item).url == URL


# -- a new worker


def test_a_new_worker():
    made = payload(
        URL,
        {"priority": 7, "cost": 2.0, "labels": {"tier": "gold", "rack": "1"}},
        {"cost": 3.0, "labels": {"rack": 2}},
        "k-1",
    )
    assert made == {
        "url": URL,
        "priority": 7,
        "cost": 3.0,
        "labels": {"tier": "gold", "rack": "2"},
        "api_key": "k-1",
    }


def test_a_new_worker_without_anything():
    assert payload(URL, {}, {}, None) == {"url": URL}
