# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
    container_from,
    container_option,
)


def which(program):
    return {"docker": "/usr/bin/docker", "podman": "/usr/bin/podman"}.get(program)


def read(**params):
    return container_from({"image": "lmsysorg/sglang:v0.5.17", **params}, which)


@pytest.mark.parametrize("params", [None, {}])
def test_no_container(params):
    assert container_from(params, which) is None


def test_the_shortest():
    assert read() == ContainerSettings("docker", "/usr/bin/docker", "lmsysorg/sglang:v0.5.17")


def test_everything():
    settings = read(
        engine="podman", volumes=["/a:/b"], shm_size="32g", gpu_access="all", options=["--privileged"], image_id="x"
    )
    assert settings == ContainerSettings(
        "podman", "/usr/bin/podman", "lmsysorg/sglang:v0.5.17", ("/a:/b",), "32g", "all", ("--privileged",)
    )


def test_an_engine_that_is_not_there_is_for_the_checks():
    settings = container_from({"image": "i"}, lambda _program: None)
    assert settings is not None and settings.engine_path == ""


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"image": ""}, "is not the name of an image"),
        ({"image": "--privileged"}, "'--privileged' is not the name of an image"),
        ({"image": "a b"}, "is not the name of an image"),
        ({"engine": "lxc"}, "'lxc' is not known: use docker or podman"),
        ({"shm_size": "lots"}, "'lots' is not a size: give one such as 32g"),
        ({"shm_size": "0"}, "'0' is not a size"),
        ({"gpu_access": "some"}, "'some' is not known"),
        ({"engine": "podman", "gpu_access": "gpus"}, "use cdi"),
    ],
)
def test_values_that_cannot_be(params, words):
    with pytest.raises(ContainerError, match=words):
        read(**params)


@pytest.mark.parametrize(
    ("engine", "access", "expected"),
    [("docker", "auto", "gpus"), ("podman", "auto", "cdi"), ("docker", "cdi", "cdi"), ("podman", "none", "none")],
)
def test_how_gpus_are_given(engine, access, expected):
    assert read(engine=engine, gpu_access=access).access == expected


def test_a_release_gives_back_what_it_was_given():
    settings = ContainerSettings("docker", "/d", "i", ("/a:/b",), "1g", "cdi", ("--x",), "sha256:1", ("/m",))
    kept = settings.to_dict()
    assert kept["volumes"] == ["/a:/b"] and ContainerSettings.from_dict(kept) == settings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": None}, "image is missing"),
        ({"volumes": "x"}, "volumes is not a list of words"),
        ({"options": [1]}, "options is not a list of words"),
        ({"shm_size": 3}, "shm_size is not a text"),
        ({"engine": "other"}, "'other' is not known"),
    ],
)
def test_a_release_that_was_changed(changes, words):
    kept = dict(ContainerSettings("docker", "/d", "i").to_dict(), **changes)
    with pytest.raises(ContainerError, match=words):
        ContainerSettings.from_dict({name: value for name, value in kept.items() if value is not None})


def test_unknown_keys_of_a_later_version_are_left_out():
    assert ContainerSettings.from_dict({"engine": "docker", "engine_path": "/d", "image": "i", "later": 1}).image == "i"


def test_the_option_has_what_the_settings_have():
    found_out = {"engine_path", "image_id", "folders"}
    assert set(container_option()["options"]) == set(ContainerSettings("docker", "", "i").to_dict()) - found_out
