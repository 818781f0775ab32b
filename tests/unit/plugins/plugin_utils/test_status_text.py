# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a fleet as text: a line for each host, and what is wrong with whom."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_differences import differences, summary
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import host_entry
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_text import (
    acceptance,
    gpu_counts,
    hosts_table,
    load,
    memory_of,
    named,
    problem_lines,
    render,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.status_samples import (
    HOSTILE,
    UNREACHABLE,
    gpu,
    gpus,
    holder,
    server,
    servers,
)


def entry(host="gpu-a", gpu_result=None, server_result=None, group="all"):
    return host_entry(host, group, gpus() if gpu_result is None else gpu_result, server_result or servers())


def shown(hosts, detail="auto", width=180):
    found = differences(hosts)
    return "\n\n".join(render(hosts, found, summary(hosts, found), detail, width))


MIXED = [
    entry("gpu-a"),
    entry("gpu-b", gpus(gpus=[gpu(n) for n in range(7)] + [gpu(7, "unknown", used=None)])),
    entry("gpu-c", gpus(holders=[], gpus=[gpu(n, "free", 0) for n in range(8)]), {"servers": []}),
    entry("gpu-d", UNREACHABLE, {"skipped": True}),
]


def test_a_line_for_each_host():
    lines = hosts_table(MIXED, 180).splitlines()
    assert len(lines) == 2 + 4
    cells = [[cell.strip() for cell in line.split("│")] for line in lines if "│" in line]
    assert cells == [
        ["host", "GPUs", "memory", "holders", "server", "SGLang", "speculation", "accept", "load"],
        [
            *("gpu-a", "8 busy", "1024/1123 GiB", "llm/sglang-main.service x8"),
            *("main: serving", "0.5.17", "EAGLE3 3/1/4", "2.44", "12 + 3"),
        ],
        [
            *("gpu-b", "7 busy, 1 unknown", ">=896/1123 GiB", "llm/sglang-main.service x8"),
            *("main: serving", "0.5.17", "EAGLE3 3/1/4", "2.44", "12 + 3"),
        ],
        ["gpu-c", "8 free", "0/1123 GiB", "-", "-", "-", "-", "-", "-"],
        ["gpu-d", "unreachable", "?", "?", "?", "?", "?", "?", "?"],
    ]


def test_what_is_wrong_what_differs_and_the_sum():
    text = shown(MIXED, "hosts")
    assert "gpu-b: GPU 7 is unknown (hung): It is unknown." in text
    assert "gpu-d: Unreachable: Failed to connect" in text
    assert "Differences:\n  main: state: serving on 2 hosts; not deployed on gpu-c; not known of gpu-d" in text
    assert "Not compared, because nothing is known of them: gpu-d." in text
    assert text.endswith(
        "4 hosts; 1 unreachable; 2 not fully known; 1 differing; 2 not serving; "
        "24 GPUs (15 busy, 8 free, 1 unknown); 2 servers (2 serving)"
    )


def test_hosts_that_are_the_same_say_so():
    assert "No difference between 2 hosts." in shown([entry("a"), entry("b")])
    assert "ifference" not in shown([entry("a")])


def test_a_tie_is_said():
    text = shown([entry("a", gpus(driver="1")), entry("b", gpus(driver="2"))])
    assert "  driver: 1 on a; 2 on b; as many hosts have one as the other" in text


def test_groups_have_a_column_and_are_compared_by_themselves():
    text = shown([entry("a", group="x"), entry("b", gpus(driver="9"), group="y"), entry("c", group="x")])
    assert "│ group │" in text.splitlines()[0]
    assert "No difference in x between 2 hosts." in text and "in y" not in text


@pytest.mark.parametrize(
    ("detail", "count", "rows"), [("auto", 8, 16), ("auto", 9, 0), ("hosts", 1, 0), ("gpus", 12, 24)]
)
def test_each_gpu_is_shown_where_there_are_few_or_somebody_wants_it(detail, count, rows):
    text = shown([entry("a", gpus(count)), entry("b", gpus(count))], detail)
    assert text.count("NVIDIA H200 │") == rows
    assert ("131072/143771 MiB │ busy    │ llm/sglang-main.service" in text) == bool(rows)


def test_two_hundred_hosts_stay_readable():
    hosts = [entry("gpu-%03d" % number) for number in range(180)]
    hosts += [entry("gpu-%03d" % number, UNREACHABLE, {"skipped": True}) for number in range(180, 200)]
    text = shown(hosts)
    assert len(text.splitlines()) < 215 and max(map(len, text.splitlines())) <= 180
    assert "gpu-180, gpu-181, gpu-182, gpu-183, gpu-184, gpu-185, gpu-186, gpu-187 and 12 more: Unreachable" in text


def test_many_different_problems_are_cut_off_and_counted():
    hosts = [entry("gpu-%03d" % n, {"msg": "problem %d" % n}) for n in range(100)]
    text = shown(hosts)
    assert "problem 59" in text and "problem 60" not in text and "... and 40 more lines: see the JSON." in text


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (gpus(0), ("none", "")),
        (gpus(1, gpus=[gpu(0, "unknown", None, memory_total_mib=None)]), ("1 unknown", "?/? GiB")),
        ({"msg": "no driver"}, ("?", "?")),
    ],
)
def test_hosts_without_gpus_that_can_be_read(entries, expected):
    one = entry("a", entries)
    assert (gpu_counts(one), memory_of(one)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "12 + 3"),
        ({"load": {"running": 1, "waiting": None}}, "1 + ?"),
        ({"load": {}}, "?"),
        ({"load": {}, "state": "stopped"}, ""),
    ],
)
def test_load(changes, expected):
    assert load(entry("a", None, servers(server(**changes)))["servers"][0]) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "2.44"),
        ({"accept_length": None, "effective": {"speculative_algorithm": None}}, ""),
        ({"accept_length": None, "effective": {}}, "?"),
        ({"accept_length": None, "effective": {}, "pid": None}, ""),
    ],
)
def test_acceptance(changes, expected):
    assert acceptance(entry("a", None, servers(server(**changes)))["servers"][0]) == expected


def test_a_server_that_does_not_serve_says_why_and_several_have_a_line_each():
    found = [
        server(),
        server("second", "failed", reason="out_of_memory", message="It died: out of memory."),
        server("third", last_good="older", problems=["/server_info answers 401"]),
        server("fourth", "stopped", pid=None, message="It was stopped."),
    ]
    one = entry("a", None, servers(*found))
    assert [line.split("│")[4].strip() for line in hosts_table([one], 180).splitlines()[2:]] == [
        "main: serving",
        "second: failed (out_of_memory)",
        "third: serving, release not proven",
        "fourth: stopped",
    ]
    assert problem_lines([one]) == [
        "a: second is failed: It died: out of memory.",
        "a: third: /server_info answers 401",
    ]


def test_names():
    assert named(["a"]) == "a" and named(list("abcdefghi")) == "a, b, c, d, e, f, g, h, i"
    assert named(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"


def test_hostile_names_do_not_widen_the_table_or_reach_the_terminal():
    long = HOSTILE + "x" * 10**4
    odd = entry(
        "b",
        gpus(
            1,
            driver=long,
            holders=[holder(9, 0, user=long, unit=long)],
            gpus=[gpu(0, "unknown", name=long, reason=long)],
        ),
        servers(server(long, reason=long, version=long, message=long, effective={"speculative_algorithm": long})),
    )
    text = shown([entry("a"), odd], "gpus")
    assert all(line.isprintable() for line in text.splitlines())
    table = text.split("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 260
    # What is wrong may be a long line, and is bounded all the same.
    assert max(map(len, text.splitlines())) < 2000
