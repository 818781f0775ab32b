# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.container_checks import (
    check_container,
    settle,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import LATE, FakeRun

PATHS = InstancePaths("main")
IMAGE = "lmsysorg/sglang:v0.5.17"
DOCKER = {
    "/usr/bin/docker version": "28.2.2\n",
    "/usr/bin/docker info": '{"nvidia": {}, "runc": {}}',
    "/usr/bin/docker image inspect": "sha256:1234567890abcdef\n",
    "/usr/bin/docker inspect": Completed(1, err="Error: No such container: sglang-main"),
    "systemctl show": "loaded\n",
}
PODMAN = {
    "/usr/bin/podman version": "4.3.1\n",
    "/usr/bin/podman image inspect": "1234567890abcdef\n",
    "/usr/bin/podman inspect": Completed(125, err='Error: no such container "sglang-main"'),
}


def settings(engine="docker", **changes):
    return ContainerSettings(engine, "/usr/bin/" + engine, IMAGE, **changes)


def check(given=None, answers=None, models=(), gpus=(), cdi=()):
    given = given or settings()
    table = {**(DOCKER if given.engine == "docker" else PODMAN), **(answers or {})}
    run = FakeRun({key: answer for key, answer in table.items() if answer is not None})
    given = settle(given, models, run)
    return check_container(given, PATHS, models, run, gpus, cdi or ("/no/such/folder",))


def only(found, status="failed"):
    assert [(item.name, item.status) for item in found] == [("container", status)], found
    return found[0].message


def test_all_is_well():
    assert only(check(), "ok") == f"docker runs {IMAGE} (1234567890ab)."
    assert only(check(settings("podman", gpu_access="none")), "ok") == f"podman runs {IMAGE} (1234567890ab)."


def test_there_is_no_engine():
    message = only(check(ContainerSettings("docker", "", IMAGE)))
    assert message == "container: there is no docker on this host: install it, or choose the other engine."


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Completed(1, err="Cannot connect to the Docker daemon."), "Cannot connect to the Docker daemon. Start it"),
        (LATE, "it did not answer in time. Start it"),
    ],
)
def test_the_daemon_does_not_answer(answer, words):
    assert words in only(check(answers={"/usr/bin/docker version": answer}))


def test_engines_that_are_too_old():
    assert "docker 19.3.5 is too old: 20.10" in only(check(answers={"/usr/bin/docker version": "19.3.5"}))
    old = check(settings("podman", gpu_access="none"), {"/usr/bin/podman version": "3.4.4"})
    assert "podman 3.4.4 is too old: 4" in only(old)


def test_a_daemon_that_systemd_does_not_know():
    message = only(check(answers={"systemctl show": "not-found\n"}))
    assert "is not run by docker.service" in message


def test_the_image_is_not_there():
    message = only(check(answers={"/usr/bin/docker image inspect": Completed(1, err="No such image")}))
    assert message.endswith(f"Run: docker pull {IMAGE}")


def test_the_name_is_somebody_else_s():
    theirs = json.dumps([{"Id": "a", "State": {"Running": False}, "Config": {"Labels": {}}}])
    message = only(check(answers={"/usr/bin/docker inspect": theirs}))
    assert "docker rename sglang-main NEW-NAME" in message


def test_the_name_is_ours():
    labels = {"inferops.sglang.instance": "main"}
    ours = json.dumps([{"Id": "a", "State": {"Running": True, "Pid": 1}, "Config": {"Labels": labels}}])
    only(check(answers={"/usr/bin/docker inspect": ours}), "ok")


def test_whose_the_name_is_cannot_be_told():
    assert "whether there is a container" in only(check(answers={"/usr/bin/docker inspect": LATE}))


# ---- the settled settings


def test_settling_finds_the_image_and_the_folders(tmp_path):
    settled = settle(settings(), [str(tmp_path), "/no/such/model", "org/model"], FakeRun(DOCKER))
    assert settled.image_id == "sha256:1234567890abcdef" and settled.folders == (str(tmp_path),)


def test_settling_without_an_image_or_an_engine():
    assert settle(settings(), [], FakeRun({})).image_id == ""
    assert settle(ContainerSettings("docker", "", IMAGE), [], FakeRun(DOCKER)).image_id == ""


def test_settling_again_looks_again():
    once = settle(settings(), [], FakeRun(DOCKER))
    moved = settle(once, [], FakeRun({"/usr/bin/docker image inspect": "sha256:new"}))
    assert moved.image_id == "sha256:new" and moved != once


# ---- words of the user


def test_options_and_volumes_are_all_reported(tmp_path):
    found = check(settings(options=("--rm", "-d"), volumes=("broken", "/no/such:/a", f"{tmp_path}:/a", "kept:/b")))
    messages = [item.message for item in found]
    assert len(messages) == 5 and all(item.status == "failed" for item in found)
    assert "--rm" in messages[0] and "-d (--detach)" in messages[1]
    assert "'broken' is not SOURCE:TARGET" in messages[2]
    assert "/no/such does not exist" in messages[3] and "two have the target /a" in messages[4]


def test_they_are_reported_also_without_an_engine():
    found = check(ContainerSettings("docker", "", IMAGE, options=("--rm",)))
    assert len(found) == 2


# ---- models


def make_cache(folder):
    """A model as the Hugging Face cache keeps it: links to blobs beside the snapshots."""
    snapshot = folder / "models--org--name" / "snapshots" / "abc"
    blobs = folder / "models--org--name" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    return snapshot


def test_a_folder_of_the_host(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("config.json")
    only(check(models=[str(tmp_path)]), "ok")


def test_links_that_lead_out_of_what_is_mounted(tmp_path):
    snapshot = make_cache(tmp_path)
    message = only(check(models=[str(snapshot)]))
    cache = tmp_path / "models--org--name"
    assert f"{snapshot}/config.json is a link to {cache}/blobs/1, which the container does not see" in message
    assert f"volumes: ['{cache}:{cache}:ro']" in message


def test_the_remedy_helps(tmp_path):
    snapshot = make_cache(tmp_path)
    cache = tmp_path / "models--org--name"
    only(check(settings(volumes=(f"{cache}:{cache}:ro",)), models=[str(snapshot)]), "ok")


def test_a_cache_at_another_place_in_the_container(tmp_path):
    make_cache(tmp_path)
    inside = "/root/.cache/hub/models--org--name/snapshots/abc"
    only(check(settings(volumes=(f"{tmp_path}:/root/.cache/hub",)), models=[inside]), "ok")


def test_absolute_links_count_from_inside(tmp_path):
    model, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    model.mkdir()
    elsewhere.mkdir()
    (elsewhere / "weights").write_text("")
    (model / "weights").symlink_to(elsewhere / "weights")
    # The host follows the link; a container that has only the model does not.
    assert "does not see" in only(check(models=[str(model)]))
    both = settings(volumes=(f"{elsewhere}:{elsewhere}",))
    only(check(both, models=[str(model)]), "ok")


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    only(check(models=[str(tmp_path)]), "ok")


def test_a_model_in_the_image_cannot_be_looked_at():
    message = only(check(models=["/in/the/image"]), "skipped")
    assert "/in/the/image is not a folder of this host" in message


def test_a_model_that_a_volume_should_have(tmp_path):
    message = only(check(settings(volumes=(f"{tmp_path}:/models",)), models=["/models/absent"]))
    assert f"/models/absent is {tmp_path}/absent on this host, which does not exist" in message


def test_a_name_on_a_hub_is_no_path():
    only(check(models=["org/name"]), "ok")


# ---- GPUs

HOOK = "nvidia-container-runtime-hook"


@pytest.mark.parametrize(
    ("runtimes", "hook", "status"),
    [
        ('{"runc": {}, "nvidia": {}}', None, "ok"),
        ('{"runc": {}}', "version", "ok"),
        ('{"runc": {}}', None, "failed"),
        ("null", None, "warning"),
        (LATE, None, "warning"),
        (LATE, "version", "ok"),
    ],
)
def test_what_docker_needs_for_gpus(runtimes, hook, status):
    found = check(answers={"/usr/bin/docker info": runtimes, HOOK: hook})
    message = only(found, status)
    assert status != "failed" or "nvidia-ctk runtime configure" in message


SPECIFICATION = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {}
- name: GPU-a
- name: all
"""


@pytest.mark.parametrize(
    ("engine", "access", "gpus", "text", "problem"),
    [
        ("podman", "auto", ["GPU-a"], SPECIFICATION, ""),
        ("podman", "auto", [], SPECIFICATION, ""),
        ("docker", "cdi", ["GPU-a"], SPECIFICATION, ""),
        ("podman", "all", ["GPU-b"], SPECIFICATION, ""),
        ("podman", "none", ["GPU-b"], "", ""),
        ("podman", "auto", ["GPU-a", "GPU-b"], SPECIFICATION, "no device nvidia.com/gpu=GPU-b (it has 0, GPU-a, all)"),
        (
            "podman",
            "auto",
            ["GPU-a"],
            "kind: other.com/net\ndevices: [{name: GPU-a}]",
            "no description of nvidia.com/gpu",
        ),
        (
            "podman",
            "auto",
            ["GPU-a"],
            json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "GPU-a"}]}),
            "",
        ),
    ],
)
def test_what_cdi_needs(tmp_path, engine, access, gpus, text, problem):
    (tmp_path / "nvidia.yaml").write_text(text)
    (tmp_path / "README").write_text("kind: nvidia.com/gpu name: GPU-b")
    found = check(settings(engine, gpu_access=access), gpus=gpus, cdi=("/no/such/folder", str(tmp_path)))
    message = only(found, "failed" if problem else "ok")
    assert problem in message
    assert not problem or "nvidia-ctk cdi generate" in message
