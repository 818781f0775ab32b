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
