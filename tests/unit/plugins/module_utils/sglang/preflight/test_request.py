# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server and its parser inherit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import PROCESS, SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import (
    Host,
    Request,
    inherited_environment,
    probe_environment,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed

SESSION = {"HOME": "/home/me", "USER": "me", "PATH": "/bin", "LANG": "C", "SUDO_USER": "you", "SSH_TTY": "x"}
REQUEST = Request(Settings("/m"), InstancePaths("main"), PROCESS, "python3", ())
CONTAINER = ContainerSettings("docker", "/usr/bin/docker", "sglang:1")


def host(done):
    def run(argv, *_args, **_options):
        assert list(argv) == ["systemctl", "show-environment"]
        return done

    return Host(None, None, run, None, None, SESSION, None, None, None)


def test_a_process_inherits_the_session():
    inherited = inherited_environment(REQUEST, host(None))
    assert (inherited["HOME"], inherited["PATH"]) == ("/home/me", "/bin") and "SUDO_USER" not in inherited


def test_of_another_user_it_has_another_home():
    inherited = inherited_environment(replace(REQUEST, user="you"), host(None))
    assert "HOME" not in inherited and inherited["PATH"] == "/bin"


@pytest.mark.parametrize(
    ("done", "names"),
    [
        (Completed(0, "HTTP_PROXY=http://p:3128\nHOME=/root\nPATH=/bin\nno equals sign\n"), {"HTTP_PROXY", "PATH"}),
        (Completed(1, "HTTP_PROXY=http://p:3128\n"), set()),
        (Completed(127, missing=True), set()),
    ],
)
def test_a_unit_inherits_what_systemd_gives_to_all(done, names):
    assert set(inherited_environment(replace(REQUEST, manager=SYSTEMD), host(done))) == names


def test_a_container_inherits_nothing():
    request = replace(REQUEST, manager=SYSTEMD, container=CONTAINER)
    assert inherited_environment(request, host(None)) == probe_environment(request, host(None)) == {}


def test_under_systemd_the_parser_sees_little_of_the_session():
    given = probe_environment(replace(REQUEST, manager=SYSTEMD), host(None))
    assert set(given) == {"HOME", "USER", "LANG", "PATH"} and given["PATH"] != "/bin"
