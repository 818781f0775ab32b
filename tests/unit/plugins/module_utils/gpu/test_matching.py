# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import (
    Who,
    container_matches,
    executable_matches,
    unit_matches,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import process

LONG = "4f2a" + "0" * 60


@pytest.mark.parametrize(
    ("exe", "wanted", "found"),
    [
        ("/a/b", ["b"], "b"),
        ("/a/b", ["/a/b"], "/a/b"),
        ("/a/b", ["/b", "a", "/a", "/a/b/c"], ""),
        ("/a/bc", ["b"], ""),
        ("", ["", "b"], ""),
    ],
)
def test_executables(exe, wanted, found):
    assert executable_matches(exe, wanted) == found


@pytest.mark.parametrize(
    ("unit", "wanted", "found"),
    [
        ("llm.service", ["llm"], "llm"),
        ("llm.service", ["llm.service"], "llm.service"),
        ("llm.service", ["l*"], "l*"),
        ("llm@0.service", ["llm@*"], "llm@*"),
        ("session-3.scope", ["session-3"], ""),
        ("llm2.service", ["llm"], ""),
        ("LLM.service", ["llm"], ""),
        ("", ["*"], ""),
    ],
)
def test_units(unit, wanted, found):
    assert unit_matches(unit, wanted) == found


@pytest.mark.parametrize(
    ("container", "entry", "fits"),
    [
        (Container("docker", LONG, "server"), "server", True),
        (Container("docker", LONG, "server"), "docker:server", True),
        (Container("docker", LONG, "server"), "podman:server", False),
        (Container("docker", LONG, "server"), "ser*", True),
        (Container("docker", LONG, "server"), LONG, True),
        (Container("docker", LONG, "server"), "4f2a", True),
        (Container("docker", LONG, "server"), "4f2", False),  # too short to be meant
        (Container("docker", LONG), "docker:4f2a0", True),
        (Container("docker", LONG), "docker:", False),
        (Container("lxc", "129"), "lxc:129", True),
        (Container("lxc", "129"), "lxc:12", False),
        (Container("lxc", "1290"), "129", False),
    ],
)
def test_containers(container, entry, fits):
    assert container_matches(container, [entry]) == (entry if fits else "")


def test_nobody_is_meant_by_nothing():
    assert Who().match(process(5)) == ("", "")
    assert Who().match(process(5, exe="", unit=None, container=Container("lxc", "129"))) == ("", "")


def test_it_says_by_which_option():
    who = Who(frozenset([7]), ("cache",), ("llm",), ("lxc:129",))
    assert who.match(process(5, uid=7, user="eve")) == ("users", "eve")
    assert who.match(process(5, exe="/opt/cache")) == ("executables", "cache")
    assert who.match(process(5, unit="llm.service")) == ("units", "llm")
    assert who.match(process(5, container=Container("lxc", "129"))) == ("containers", "lxc:129")


def test_a_unit_inside_a_guest_is_none_of_the_hosts():
    assert Who(units=("llm",)).match(process(5, unit="llm.service", container=Container("lxc", "130"))) == ("", "")


def test_the_first_entry_that_fits_is_told():
    assert executable_matches("/a/b", ["x", "b", "/a/b"]) == "b"
    assert unit_matches("llm.service", ["x", "l*", "llm"]) == "l*"
    assert container_matches(Container("docker", LONG, "server"), ["podman:*", "x", "docker:ser*", "server"]) == (
        "docker:ser*"
    )


def test_the_start_of_an_id_is_one_of_a_whole_id():
    assert container_matches(Container("lxc", "12345"), ["1234"]) == ""
    assert container_matches(Container("docker", LONG[:63]), ["4f2a"]) == ""
    assert container_matches(Container("docker", LONG), ["f2a0"]) == ""


def test_a_name_that_is_empty_is_no_name():
    assert container_matches(Container("docker", LONG), ["", "docker:"]) == ""
    assert container_matches(Container("docker", LONG, "a:b"), ["docker:a:b"]) == "docker:a:b"


def test_a_session_is_told_by_its_number():
    who = Who(sessions=frozenset([880]))
    assert who.match(process(5, session=880)) == ("sessions", "880")
    assert who.match(process(5, session=881)) == ("", "")


def test_of_several_options_the_surest_is_told():
    who = Who(frozenset([7]), ("cache",), ("llm",), ("lxc:129",), frozenset([880]))
    guest = Container("lxc", "129")
    everything = {"uid": 7, "user": "eve", "exe": "/opt/cache", "session": 880, "container": guest}
    told = []
    for without in ("", "uid", "exe", "session"):
        everything.pop(without, None)
        told.append(who.match(process(5, **everything))[0])
    assert told == ["users", "executables", "sessions", "containers"]


def test_only_a_name_without_a_dot_goes_without_its_ending():
    assert unit_matches("llm.a.service", ["llm.a"]) == ""
    assert unit_matches("llm.a.service", ["llm.a.service"]) == "llm.a.service"


def test_a_process_without_a_unit_is_in_none():
    assert Who(units=("*",)).match(process(5, unit=None)) == ("", "")
