# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.worker_files import (
    FOLDER,
    is_worker,
    used_workers,
)

ON, OFF = {"disable_overlap_schedule": False}, {"disable_overlap_schedule": True}
MULTI = {"enable_multi_layer_eagle": True}


@pytest.mark.parametrize(
    ("version", "algorithm", "fields", "stems"),
    [
        ("0.5.7", "EAGLE3", OFF, ["eagle_worker"]),
        ("0.5.7", "EAGLE3", ON, ["eagle_worker_v2"]),
        ("0.5.12", "EAGLE3", ON, ["eagle_worker_v2"]),
        ("0.5.12.post1", "EAGLE", OFF, ["eagle_worker"]),
        ("0.5.13", "EAGLE3", OFF, ["eagle_worker_v2"]),
        ("0.5.17", "EAGLE3", {}, ["eagle_worker_v2"]),
        ("0.5.23", "NEXTN", ON, ["eagle_worker_v2"]),
        ("0.5.12", "EAGLE", dict(OFF, **MULTI), ["multi_layer_eagle_worker", "eagle_worker"]),
        ("0.5.12", "EAGLE", dict(ON, **MULTI), ["multi_layer_eagle_worker_v2"]),
        ("0.5.17", "EAGLE", dict(OFF, **MULTI), ["multi_layer_eagle_worker_v2"]),
        ("0.5.23", "EAGLE", dict(ON, **MULTI), ["multi_layer_eagle_worker_v2", "eagle_worker_v2"]),
        ("0.5.7", "STANDALONE", OFF, ["standalone_worker", "eagle_worker"]),
        ("0.5.8", "STANDALONE", ON, ["standalone_worker_v2", "eagle_worker_v2"]),
        ("0.5.12", "STANDALONE", OFF, ["standalone_worker", "eagle_worker"]),
        ("0.5.17", "STANDALONE", OFF, ["standalone_worker_v2", "eagle_worker_v2"]),
        ("0.5.7", "NGRAM", OFF, ["ngram_worker"]),
        ("0.5.23", "NGRAM", ON, ["ngram_worker"]),
        ("0.5.12", "FROZEN_KV_MTP", OFF, ["frozen_kv_mtp_worker"]),
        ("0.5.13", "FROZEN_KV_MTP", OFF, ["frozen_kv_mtp_worker"]),
        ("0.5.13", "DFLASH", OFF, ["dflash_worker"]),
        ("0.5.14", "DFLASH", ON, ["dflash_worker_v2"]),
        ("0.5.23", "UNO", ON, ["uno_worker_v2"]),
        ("0.5.14", "FROZEN_KV_MTP", ON, ["frozen_kv_mtp_worker_v2", "eagle_worker_v2"]),
        ("0.5.16", "DSPARK", ON, ["dspark_components/dspark_worker_v2"]),
        ("0.5.23", None, {}, []),
        ("0.5.23", "", {}, []),
        ("0.5.12", "none", {}, []),
    ],
)
def test_the_file_that_runs_depends_on_version_and_configuration(version, algorithm, fields, stems):
    effective = dict(fields, speculative_algorithm=algorithm)
    assert used_workers(version, effective) == tuple(f"{FOLDER}{stem}.py" for stem in stems)


@pytest.mark.parametrize(
    ("version", "effective"),
    [
        ("", {"speculative_algorithm": "EAGLE3"}),
        ("0.5.17", {}),
        ("0.5.12", {"speculative_algorithm": "EAGLE3"}),
        ("0.5.23", {"speculative_algorithm": "MY_PLUGIN"}),
    ],
)
def test_what_is_not_known_is_not_guessed(version, effective):
    assert used_workers(version, effective) is None


@pytest.mark.parametrize(
    ("target", "worker"),
    [
        ("sglang/srt/speculative/eagle_worker.py", True),
        ("sglang/srt/speculative/multi_layer_eagle_worker_v2.py", True),
        ("sglang/srt/speculative/dspark_components/dspark_worker_v2.py", True),
        ("sglang/srt/speculative/eagle_worker_common.py", False),
        ("sglang/srt/speculative/base_spec_worker.py", False),
        ("sglang/srt/speculative/eagle_utils.py", False),
        ("sglang/srt/managers/tp_worker.py", False),
    ],
)
def test_which_files_are_workers(target, worker):
    assert is_worker(target) is worker
