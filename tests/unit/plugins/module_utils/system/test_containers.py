# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers, guests and units, read off the paths of control groups: one table of what engines make."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import (
    Container,
    UnitName,
    belongs,
    container_of,
    guest_unit,
    place_of,
)

A = "4f2a6d" + "0" * 58
B = "b" * 64
POD = "8f0e7f6c-1d2e-4a5b-9c3d-0123456789ab"
POD_ = POD.replace("-", "_")
USER = "/user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    ("path", "runtime", "identifier"),
    [
        ("/docker/" + A, "docker", A),
        ("/system.slice/docker-%s.scope" % A, "docker", A),
        ("/system.slice/docker-%s.scope/init.scope" % A, "docker", A),
        ("/system.slice:docker:" + A, "docker", A),
        ("/docker/buildx/" + A, "docker", A),
        (USER + "/user.slice/docker-%s.scope" % A, "docker", A),
        ("/ecs/0123abc/" + A, "docker", A),
        ("/../../docker/" + A, "docker", A),
        ("/mine/" + A, "oci", A),
        ("/machine.slice/libpod-%s.scope" % A, "podman", A),
        ("/machine.slice/libpod-%s.scope/container" % A, "podman", A),
        ("/machine.slice/machine-libpod_pod_%s.slice/libpod-%s.scope" % (B, A), "podman", A),
        ("/libpod_parent/libpod-" + A, "podman", A),
        ("/libpod_parent/%s/libpod-%s" % (B, A), "podman", A),
        (USER + "/user.slice/libpod-%s.scope/container" % A, "podman", A),
        ("/system.slice/sglang.service/libpod-payload-" + A, "podman", A),
        ("/system.slice/nerdctl-%s.scope" % A, "containerd", A),
        ("/default/" + A, "containerd", A),
        ("/lxc/129", "lxc", "129"),
        ("/lxc/129/ns", "lxc", "129"),
        ("/lxc/129/ns/system.slice/sglang.service", "lxc", "129"),
        ("/lxc/129-1/ns/init.scope", "lxc", "129"),
        ("/lxc/web-1", "lxc", "web-1"),
        ("/lxc.payload.129", "lxc", "129"),
        ("/lxc.payload/web/init.scope", "lxc", "web"),
        ("/lxc.payload.my.guest/system.slice/cron.service", "lxc", "my.guest"),
        (r"/machine.slice/machine-my\x2dweb.scope/payload/init.scope", "nspawn", "my-web"),
        (r"/machine.slice/systemd-nspawn@my\x2dweb.service/payload", "nspawn", "my-web"),
        ("/qemu.slice/101.scope", "qemu", "101"),
        (r"/machine.slice/machine-qemu\x2d3\x2dwin10.scope/libvirt/emulator", "qemu", "3"),
        ("/machine/old.libvirt-qemu/emulator", "qemu", "old"),
        (r"/machine.slice/machine-lxc\x2d77\x2dbox.scope", "libvirt-lxc", "77"),
    ],
)
def test_container(path, runtime, identifier):
    found = container_of(path)
    assert (found.runtime, found.id) == (runtime, identifier)
    assert found.inner is None
    assert found.pod == ""


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%s.slice/cri-containerd-%s.scope"
            % (POD_, A),
            "containerd",
        ),
        ("/kubepods.slice/kubepods-pod%s.slice/cri-containerd-%s.scope/init.scope" % (POD_, A), "containerd"),
        (
            "/system.slice/containerd.service/kubepods-besteffort-pod%s.slice:cri-containerd:%s" % (POD_, A),
            "containerd",
        ),
        ("/kubepods-besteffort-pod%s.slice:cri-containerd:%s" % (POD_, A), "containerd"),
        ("/kubepods.slice/kubepods-pod%s.slice/crio-%s.scope" % (POD_, A), "crio"),
        ("/kubepods.slice/kubepods-pod%s.slice/crio-%s.scope/container" % (POD_, A), "crio"),
        ("/kubepods/burstable/pod%s/crio-%s" % (POD, A), "crio"),
        ("/kubepods.slice/kubepods-pod%s.slice/docker-%s.scope" % (POD_, A), "docker"),
        ("/kubepods/besteffort/pod%s/%s" % (POD, A), "kubernetes"),
        ("/kubepods/pod%s/%s" % (POD, A), "kubernetes"),
    ],
)
def test_a_pod_is_named(path, runtime):
    assert container_of(path) == Container(runtime, A, pod=POD)


def test_a_static_pod_has_a_hash_for_its_uid():
    path = "/kubepods/burstable/pod%s/%s" % ("c" * 32, A)
    assert container_of(path) == Container("kubernetes", A, pod="c" * 32)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/..",
        "/lxc",
        "/lxc.monitor.129",
        "/lxc.monitor/129",
        "/lxc.pivot",
        "/system.slice/sglang-main.service",
        "/system.slice/docker.service",
        "/system.slice/docker-cleanup.service",
        "/system.slice/containerd.service",
        "/system.slice/pve-container@129.service",
        "/machine.slice/libpod-conmon-%s.scope" % A,
        "/kubepods.slice/kubepods-pod%s.slice/crio-conmon-%s.scope" % (POD_, A),
        "/machine.slice/systemd-nspawn@web.service/supervisor",
        "/machine.slice/machine-web.scope/supervisor",
        "/user.slice/user-0.slice/session-3.scope",
        "/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0",
        "/qemu.slice",
    ],
)
def test_no_container(path):
    assert container_of(path) is None
    assert guest_unit(path) is None


@pytest.mark.parametrize(
    ("path", "outer", "inner"),
    [
        ("/docker/%s/docker/%s" % (A, B), ("docker", A), ("docker", B)),
        ("/lxc/129/ns/system.slice/docker-%s.scope" % A, ("lxc", "129"), ("docker", A)),
        ("/lxc/129/ns/docker/" + A, ("lxc", "129"), ("docker", A)),
        ("/lxc.payload.129/lxc.payload.5/init.scope", ("lxc", "129"), ("lxc", "5")),
        ("/lxc/129/ns/lxc/5", ("lxc", "129"), ("lxc", "5")),
        ("/docker/%s/kubelet/kubepods/besteffort/pod%s/%s" % (A, POD, B), ("docker", A), ("kubernetes", B)),
    ],
)
def test_the_outermost_is_what_the_host_can_stop(path, outer, inner):
    found = container_of(path)
    assert (found.runtime, found.id) == outer
    assert (found.inner.runtime, found.inner.id) == inner
    assert found.innermost == found.inner


def test_the_pod_of_an_inner_container_is_not_the_outer_ones():
    found = container_of("/docker/%s/kubelet/kubepods/besteffort/pod%s/%s" % (A, POD, B))
    assert (found.pod, found.inner.pod) == ("", POD)


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/lxc/129/ns/system.slice/sglang.service", "sglang.service"),
        (r"/lxc/129/ns/system.slice/sgl\x2dmain.service", r"sgl\x2dmain.service"),
        ("/lxc.payload.129/system.slice/system-sglang.slice/sglang@a.service", "sglang@a.service"),
        ("/lxc/129/ns/init.scope", "init.scope"),
        ("/lxc/129", None),
        ("/lxc/129/ns/system.slice/docker-%s.scope" % A, None),
        ("/machine.slice/systemd-nspawn@web.service/payload/system.slice/sglang.service", "sglang.service"),
        ("/system.slice/docker-%s.scope/system.slice/sglang.service" % A, "sglang.service"),
        ("/system.slice/sglang.service", None),
    ],
)
def test_the_unit_inside_a_guest(path, unit):
    assert guest_unit(path) == unit


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/sglang-main.service", UnitName("sglang-main.service")),
        (r"/system.slice/system-a\x2db.slice/a-b@1.service", UnitName("a-b@1.service")),
        (r"/system.slice/a\x2db.service", UnitName(r"a\x2db.service")),
        ("/system.slice/_cpu.service", UnitName("cpu.service")),
        ("/system.slice/sglang.service/libpod-payload-" + A, UnitName("sglang.service")),
        (USER + "/app.slice/job.service", UnitName("job.service", 1000)),
        (USER + "/init.scope", UnitName("init.scope", 1000)),
        (USER, UnitName("user@1000.service")),
        ("/machine.slice/libpod-%s.scope" % A, None),
        ("/lxc/129/ns/system.slice/sglang.service", None),
        (USER + "/user.slice/docker-%s.scope" % A, UnitName("user@1000.service")),
    ],
)
def test_the_unit_on_this_side(path, unit):
    assert place_of(path).unit == unit


def test_the_groups_themselves():
    place = place_of("/../lxc/129/ns/system.slice/sglang.service/sub/docker/%s/x" % A)
    assert place.container.cgroup == "/lxc/129"
    assert place.container.inner.cgroup == "/lxc/129/ns/system.slice/sglang.service/sub/docker/" + A
    assert place.guest_unit.cgroup == "/lxc/129/ns/system.slice/sglang.service"
    assert place_of(USER + "/app.slice/job.service/x").unit.cgroup == USER + "/app.slice/job.service"


def test_whose_user_manager():
    assert place_of(USER + "/user.slice/libpod-%s.scope/container" % A).uid == 1000
    assert place_of("/lxc/129/ns" + USER + "/app.slice/job.service").uid is None
    assert place_of("/lxc/129/ns" + USER + "/app.slice/job.service").guest_unit == UnitName("job.service", 1000)


@pytest.mark.parametrize(
    ("path", "group", "expected"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/../a/b", "/a", True),
        ("/ab", "/a", False),
        ("/", "/a", False),
        ("/a", "/", False),
        ("/a", "", False),
    ],
)
def test_belongs(path, group, expected):
    assert belongs(path, group) is expected


def test_label_and_name():
    assert Container("docker", A).label == "docker:4f2a6d000000"
    assert Container("docker", A, "sglang").label == "docker:sglang"
    assert Container("lxc", "129").label == "lxc:129"
    assert container_of(r"/machine.slice/machine-qemu\x2d3\x2dwin10.scope").label == "qemu:win10"


def test_whole_names_are_decoded_at_once():
    assert container_of(r"/machine.slice/machine-b\xc3\xbcro.scope").id == "büro"
