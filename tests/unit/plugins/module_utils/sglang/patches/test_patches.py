# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import FoundFile
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches import patches
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.patches import (
    PatchError,
    check_patches,
    patches_from,
    sha256_of,
)

V1 = "sglang/srt/speculative/eagle_worker.py"
V2 = "sglang/srt/speculative/eagle_worker_v2.py"
OTHER = "sglang/srt/layers/sampler.py"
BEFORE, AFTER = "x = 1\n", "x = 2\n"
EAGLE3 = {"speculative_algorithm": "EAGLE3", "disable_overlap_schedule": False}


def digest(text):
    return sha256_of(text.encode())


def wanted(target=V2, content=AFTER, **changes):
    return dict(
        {
            "src": "patched.py",
            "target": target,
            "content": content,
            "sha256_before": digest(BEFORE),
            "sha256_after": "",
        },
        **changes,
    )


def found(text=BEFORE, target=V2):
    return {target: FoundFile(f"/v/{target}", "" if text is None else digest(text))}


def entry(after, target=V2, before=BEFORE, **changes):
    values = {
        "target": target,
        "path": f"/v/{target}",
        "sha256_before": digest(before),
        "sha256_after": digest(after),
    }
    return dict(values, **changes)


def statuses(checks):
    return [check.status for check in checks]


def test_without_patches_there_is_nothing_to_say():
    assert check_patches([], {}, [], EAGLE3, "0.5.17") == []


def test_a_patch_that_fits():
    (check,) = check_patches([wanted()], found(), [], EAGLE3, "0.5.17")
    assert check.status == "ok" and V2 in check.message


def test_a_checksum_is_compared_whatever_its_case():
    patch = wanted(sha256_before=digest(BEFORE).upper(), sha256_after=digest(AFTER).upper())
    assert statuses(check_patches([patch], found(), [], EAGLE3, "0.5.17")) == ["ok"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"target": "/etc/passwd"}, "'/etc/passwd' is no file of the package"),
        ({"target": "sglang/../../etc/passwd"}, "is no file of the package"),
        ({"target": "sglang/./x.py"}, "is no file of the package"),
        ({"target": "sglang//x.py"}, "is no file of the package"),
        ({"target": "torch/nn.py"}, "is no file of the package"),
        ({"target": "sglang"}, "is no file of the package"),
        ({"target": "sglang/a.py\n"}, "is no file of the package"),
        ({"content": None}, "has no content"),
        ({"sha256_before": ""}, "sha256_before of"),
        ({"sha256_before": "abc"}, "64 hexadecimal digits"),
        ({"sha256_after": digest("other")}, "not the file that was meant"),
        ({"content": BEFORE}, "is the file as released"),
    ],
)
def test_a_patch_that_cannot_be(changes, part):
    with pytest.raises(PatchError, match="patches: ") as caught:
        patches_from([wanted(**changes)])
    assert part in str(caught.value)
    (check,) = check_patches([wanted(**changes)], found(), [], EAGLE3, "0.5.17")
    assert check.status == "failed" and part in check.message


def test_two_patches_of_one_file():
    (check,) = check_patches([wanted(), wanted(content="x = 3\n")], found(), [], EAGLE3, "0.5.17")
    assert check.status == "failed" and "target of two patches" in check.message


@pytest.mark.parametrize(
    ("text", "current", "status"),
    [
        (BEFORE, [], "ok"),
        ("by hand", [], "failed"),
        (AFTER, [], "failed"),  # what was wanted, but not from us: nothing to go back to
        (AFTER, [entry(AFTER)], "ok"),
        ("older patch", [entry("older patch")], "ok"),
        ("older patch", [entry("older patch", before="other")], "failed"),
        ("older patch", [entry("older patch", path="/elsewhere/x.py")], "failed"),
        ("under way", [entry(AFTER, ours=[digest("under way")])], "ok"),
        ("by hand", [entry(AFTER)], "failed"),
    ],
)
def test_the_file_must_be_as_released_or_as_we_left_it(text, current, status):
    (check,) = check_patches([wanted()], found(text), current, EAGLE3, "0.5.17")
    assert check.status == status
    if status == "failed":
        assert digest(text) in check.message and digest(BEFORE) in check.message and f"/v/{V2}" in check.message


def test_patches_of_a_release_will_do_as_what_is_current():
    assert statuses(check_patches([wanted()], found(AFTER), [entry(AFTER)], EAGLE3, "0.5.17")) == ["ok"]


def test_another_instance_that_wants_it_otherwise_is_named():
    theirs = [entry("theirs", wanted_by={"b": "r1", "main": "r2"})]
    (check,) = check_patches([wanted()], found("theirs"), theirs, EAGLE3, "0.5.17", instance="main")
    assert check.status == "failed" and "patched otherwise for b," in check.message
    same = [entry(AFTER, wanted_by={"b": "r1"})]
    assert statuses(check_patches([wanted()], found(AFTER), same, EAGLE3, "0.5.17", instance="main")) == ["ok"]


@pytest.mark.parametrize(
    ("target", "version", "effective", "status", "part"),
    [
        (V1, "0.5.12", EAGLE3, "failed", f"with EAGLE3 and disable_overlap_schedule=false, but {V2}"),
        (V2, "0.5.7", dict(EAGLE3, disable_overlap_schedule=True), "failed", f"but {V1}"),
        (V1, "0.5.7", dict(EAGLE3, disable_overlap_schedule=True), "ok", ""),
        (V1, "0.5.17", EAGLE3, "failed", V2),
        (V2, "0.5.17", {"speculative_algorithm": "NGRAM"}, "failed", "ngram_worker.py"),
        (V2, "0.5.17", {"speculative_algorithm": None}, "failed", "does not speculate"),
        (OTHER, "0.5.17", {"speculative_algorithm": None}, "ok", ""),
        (V2, "0.5.17", {"speculative_algorithm": "STANDALONE"}, "ok", ""),
        (V2, "", EAGLE3, "warning", "unknown version"),
        (V2, "0.5.12", {"speculative_algorithm": "EAGLE3"}, "warning", "not known whether SGLang 0.5.12"),
    ],
)
def test_a_worker_that_would_not_be_loaded_is_refused(target, version, effective, status, part):
    (check,) = check_patches([wanted(target)], found(target=target), [], effective, version)
    assert check.status == status and part in check.message


@pytest.mark.parametrize(
    ("target", "effective", "part"),
    [
        (V1, EAGLE3, f"This configuration uses {V2}"),
        (V1, {}, "Name a file of the installed version"),
        (OTHER, EAGLE3, "Name a file of the installed version"),
        (V1, {"speculative_algorithm": None}, "does not speculate"),
    ],
)
def test_a_target_that_does_not_exist(target, effective, part):
    (check,) = check_patches([wanted(target)], found(None, target), [], effective, "0.5.17")
    assert check.status == "failed" and "does not exist" in check.message and part in check.message


def test_a_target_that_cannot_be_read():
    there = {V2: FoundFile(f"/v/{V2}", "", "Permission denied")}
    (check,) = check_patches([wanted()], there, [], EAGLE3, "0.5.17")
    assert check.status == "failed" and "Permission denied" in check.message


def test_a_target_that_was_not_looked_at():
    (check,) = check_patches([wanted()], {}, [], EAGLE3, "0.5.17")
    assert check.status == "failed" and "parser=auto" in check.message


def test_a_python_source_must_compile(tmp_path):
    original = tmp_path / "eagle_worker_v2.py"
    original.write_text(BEFORE)
    there = {V2: FoundFile(str(original), digest(BEFORE))}
    (check,) = check_patches([wanted(content="x = (\n")], there, [], EAGLE3, "0.5.17")
    assert check.status == "failed" and "patched.py" in check.message and "line 1" in check.message


def test_a_python_that_does_not_know_the_syntax_of_the_original_does_not_judge(tmp_path):
    original = tmp_path / "eagle_worker_v2.py"
    original.write_text("of a later (Python\n")
    there = {V2: FoundFile(str(original), digest(BEFORE))}
    (check,) = check_patches([wanted(content="x = (\n")], there, [], EAGLE3, "0.5.17")
    assert check.status == "warning" and "newer than this Python" in check.message


def test_an_original_in_an_image_is_judged_by_a_python_that_could_run_it():
    def unreadable(_path):
        raise FileNotFoundError

    assert patches._can_judge("/in/the/image.py", unreadable, (3, 10))
    assert not patches._can_judge("/in/the/image.py", unreadable, (3, 9))


def test_other_files_need_not_be_python():
    target = "sglang/srt/layers/config.json"
    patch = wanted(target, content="{not python")
    assert statuses(check_patches([patch], found(target=target), [], EAGLE3, "0.5.17")) == ["ok"]


def test_all_problems_are_told_at_once(tmp_path):
    original = tmp_path / "eagle_worker_v2.py"
    original.write_text(BEFORE)
    both = [wanted(V1), wanted(V2, content="x = (\n")]
    there = {**found(None, V1), V2: FoundFile(str(original), digest("by hand"))}
    checks = check_patches(both, there, [], EAGLE3, "0.5.17")
    assert statuses(checks) == ["failed"] * 3
