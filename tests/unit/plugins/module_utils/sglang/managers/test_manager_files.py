# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.manager_files import (
    HEADER,
    ManagerFile,
    manager_files,
    obsolete,
    outdated,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError

PATHS = InstancePaths("main")
CONTAINER = ContainerSettings("docker", "/usr/bin/docker", "i").to_dict()
ENVIRONMENT = {"DOCKER_HOST": "tcp://elsewhere", "HF_TOKEN": "geheim"}


def release(**changes):
    fields = {"id": "R", "created": "", "instance": "main", "manager": "systemd", "command": ["/usr/bin/python3"]}
    return Release(**{**fields, **changes})


def written(given, manager="systemd"):
    return {item.path.name: item for item in manager_files(given, PATHS, manager)}


def test_a_process_needs_no_files():
    assert written(release(environment=ENVIRONMENT), "process") == {}


def test_secrets_are_for_the_user_alone_whatever_the_manager():
    for manager in ("systemd", "process"):
        item = written(release(secret_args={"api-key": "geheim"}, user="llm"), manager)["secrets.yaml"]
        assert (item.mode, item.owner) == (0o400, "llm") and 'api-key: "geheim"' in item.text


def test_a_unit_and_its_environment():
    files = written(release(environment=ENVIRONMENT))
    assert sorted(files) == ["environment", "sglang-main.service"]
    assert 'DOCKER_HOST="tcp://elsewhere"' in files["environment"].text
    assert files["environment"].mode == 0o600


def test_what_would_change_the_engine_s_client_is_kept_from_it():
    files = written(release(environment=ENVIRONMENT, container=CONTAINER))
    assert "DOCKER_HOST" not in files["environment"].text
    assert "--env DOCKER_HOST=tcp://elsewhere --env HF_TOKEN " in files["sglang-main.service"].text
    assert 'HF_TOKEN="geheim"' in files["environment"].text


def test_no_secret_is_in_the_unit():
    given = release(environment=ENVIRONMENT, container=CONTAINER, secret_args={"api-key": "geheim"})
    assert "geheim" not in written(given)["sglang-main.service"].text


def test_a_container_needs_systemd():
    with pytest.raises(ReleaseError, match="Set manager to systemd, or remove container"):
        written(release(container=CONTAINER), "process")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"command": ["python3"]}, "command, user or working_directory cannot be put into a unit: .*absolute path"),
        ({"container": {"engine": "docker"}}, "container, user or paths cannot be put into a unit: .*is missing"),
        ({"container": CONTAINER, "user": "no-such-user"}, "container, user or paths .*'no-such-user' does not exist"),
    ],
)
def test_what_no_unit_can_say(changes, words):
    with pytest.raises(ReleaseError, match=words):
        written(release(**changes))


@pytest.mark.parametrize(
    ("manager", "secrets", "gone"),
    [
        ("systemd", {"api-key": "k"}, []),
        ("systemd", {}, ["secrets.yaml"]),
        ("process", {"api-key": "k"}, ["environment", "sglang-main.service"]),
        ("process", {}, ["environment", "secrets.yaml", "sglang-main.service"]),
    ],
)
def test_what_another_release_needed_goes(tmp_path, manager, secrets, gone):
    paths = InstancePaths("main", str(tmp_path), etc_dir=str(tmp_path / "etc"), unit_dir=str(tmp_path / "units"))
    enabled = paths.unit_file.parent / "multi-user.target.wants" / paths.unit_name
    enabled.parent.mkdir(parents=True)
    enabled.symlink_to(paths.unit_file)
    paths.environment_file.parent.mkdir(parents=True)
    for path in (paths.environment_file, paths.unit_file, paths.secret_args_file):
        path.write_text(HEADER + "\n")
    found = obsolete(release(manager=manager, secret_args=secrets), paths)
    assert sorted(path.name for path in found if path != enabled) == gone
    assert (enabled in found) == (manager == "process")


def test_what_somebody_else_wrote_stays(tmp_path):
    paths = InstancePaths("main", str(tmp_path), etc_dir=str(tmp_path / "etc"), unit_dir=str(tmp_path))
    paths.unit_file.write_text("[Service]\n")
    assert obsolete(release(manager="process"), paths) == []


def test_a_file_of_another_owner_is_written_anew(tmp_path):
    path = tmp_path / "secrets.yaml"
    path.write_text("x")
    path.chmod(0o400)
    mine = ManagerFile(path, "x", 0o400, str(os.geteuid()))
    assert outdated([mine]) == []
    other = ManagerFile(path, "x", 0o400, str(os.geteuid() + 1))
    assert outdated([other]) == [other]
