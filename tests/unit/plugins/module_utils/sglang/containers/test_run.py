# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import pwd

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.mounts import Mount
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import (
    clear_words,
    client_environment,
    daemon_unit,
    end_words,
    probe_words,
    run_words,
    stop_words,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

PATHS = InstancePaths("main", state_dir="/srv/state")
COMMAND = ["python3", "-m", "sglang.launch_server", "--model-path", "/m/target"]


def settings(engine="docker", **changes):
    return ContainerSettings(engine, "/usr/bin/" + engine, "lmsysorg/sglang:v0.5.17", **changes)


def release(**changes):
    return Release(
        **{"id": "R1", "created": "", "instance": "main", "manager": "systemd", "command": COMMAND, **changes}
    )


def run(given=None, **changes):
    return run_words(given or settings(), release(**changes), PATHS)


def values(words, option):
    return [words[position + 1] for position, word in enumerate(words) if word == option]


MARKERS = ["INFEROPS_SGLANG_INSTANCE=main", "INFEROPS_SGLANG_STATE_DIR=/srv/state"]


def test_all_words_for_docker():
    assert " ".join(run(gpus=["GPU-a", "GPU-b"], stop_timeout=300.0)) == (
        "/usr/bin/docker run --rm --pull never --init --network host --ipc host --ulimit memlock=-1:-1 "
        "--ulimit nofile=1048576:1048576 --pids-limit -1 --security-opt label=disable --log-driver none "
        "--name sglang-main --label inferops.sglang.instance=main --stop-signal SIGTERM --stop-timeout 300 "
        '--gpus "device=GPU-a,GPU-b" --env INFEROPS_SGLANG_INSTANCE=main --env INFEROPS_SGLANG_STATE_DIR=/srv/state '
        "--entrypoint python3 lmsysorg/sglang:v0.5.17 -m sglang.launch_server --model-path /m/target"
    )


def test_all_words_for_podman():
    assert " ".join(run(settings("podman"), gpus=["GPU-a"], stop_timeout=300.0)) == (
        "/usr/bin/podman run --rm --pull never --init --network host --ipc host --ulimit memlock=-1:-1 "
        "--ulimit nofile=1048576:1048576 --pids-limit -1 --security-opt label=disable --http-proxy=false "
        "--cgroups split --log-driver passthrough "
        "--name sglang-main --label inferops.sglang.instance=main --stop-signal SIGTERM --stop-timeout 300 "
        "--device nvidia.com/gpu=GPU-a --env INFEROPS_SGLANG_INSTANCE=main --env INFEROPS_SGLANG_STATE_DIR=/srv/state "
        "--entrypoint python3 lmsysorg/sglang:v0.5.17 -m sglang.launch_server --model-path /m/target"
    )


def test_shared_memory_of_its_own():
    words = run(settings(shm_size="32g"))
    assert values(words, "--shm-size") == ["32g"] and "--ipc" not in words


@pytest.mark.parametrize(("seconds", "whole"), [(300.0, "300"), (90.2, "91"), (0.001, "1")])
def test_times_are_whole_and_never_none(seconds, whole):
    assert values(run(stop_timeout=seconds), "--stop-timeout") == [whole]
    assert stop_words(settings(), PATHS, seconds) == ["/usr/bin/docker", "stop", "-t", whole, "sglang-main"]


def test_values_of_the_environment_are_no_words():
    words = run(environment={"HF_TOKEN": "hf-secret", "NCCL_DEBUG": "INFO", "HF_HOME": "/cache"})
    assert values(words, "--env") == ["HF_HOME", "HF_TOKEN", "NCCL_DEBUG", *MARKERS]
    assert not any("hf-secret" in word for word in words)


OF_THE_CLIENT = {
    "PATH": "/opt/venv/bin",
    "HOME": "/nowhere",
    "LD_PRELOAD": "/in/the/image.so",
    "DOCKER_HOST": "tcp://elsewhere",
    "CONTAINER_HOST": "ssh://elsewhere",
    "CONTAINERS_CONF": "/x",
    "XDG_RUNTIME_DIR": "/x",
    "TMPDIR": "/scratch",
    "GODEBUG": "x",
}


def test_variables_that_would_change_the_client_are_kept_from_it():
    assert client_environment({**OF_THE_CLIENT, "HF_HOME": "/cache"}) == {"HF_HOME": "/cache"}
    assert values(run(environment=OF_THE_CLIENT), "--env") == [
        *(f"{name}={value}" for name, value in sorted(OF_THE_CLIENT.items())),
        *MARKERS,
    ]


def test_a_secret_is_no_word_whatever_its_name():
    environment = {"DOCKER_AUTH_TOKEN": "geheim"}
    assert client_environment(environment) == environment
    assert values(run(environment=environment), "--env") == ["DOCKER_AUTH_TOKEN", *MARKERS]


def test_every_variable_reaches_the_server_on_exactly_one_way():
    environment = {**OF_THE_CLIENT, "A": "1", "HF_TOKEN": "x", "GOOGLE": "y", "no_proxy": "*"}
    words = values(run(environment=environment), "--env")[:-2]
    assert sorted(word.partition("=")[0] for word in words) == sorted(environment)
    by_name = {word for word in words if "=" not in word}
    assert by_name == set(client_environment(environment))


def mounted(words):
    found = []
    for value in values(words, "--mount"):
        fields = dict(field.split("=") for field in value.split(",") if "=" in field)
        assert value.endswith(",readonly") and fields["type"] == "bind"
        found.append((fields["source"], fields["target"]))
    return found


def test_what_is_mounted():
    words = run(
        settings(folders=("/m/target", "/m/draft"), volumes=("/cache:/root/.cache", "kept:/x:ro")),
        secret_args={"api-key": "geheim"},
        files={"adaptive.json": "{}"},
        patches=[{"target": "sglang/a.py", "path": "/py/sglang/a.py", "sha256_before": "0", "sha256_after": "abc"}],
    )
    assert mounted(words) == [
        ("/m/target", "/m/target"),
        ("/m/draft", "/m/draft"),
        ("/etc/sglang/main/secrets.yaml", "/etc/sglang/main/secrets.yaml"),
        # Of this very release, where the command expects the current one: the link may move.
        ("/srv/state/main/releases/R1/adaptive.json", "/srv/state/main/current/adaptive.json"),
        ("/srv/state/main/releases/R1/patches/abc", "/py/sglang/a.py"),
    ]
    assert values(words, "--volume") == ["/cache:/root/.cache", "kept:/x:ro"]
    assert not any("geheim" in word for word in words)


def test_the_release_itself_which_holds_secrets_is_not_mounted():
    assert mounted(run(secret_args={}, environment={"HF_TOKEN": "x"})) == []


def test_the_image_that_was_checked_runs_wherever_its_name_points():
    words = run(settings(image_id="sha256:123"))
    assert "sha256:123" in words and "lmsysorg/sglang:v0.5.17" not in words


def test_further_options_come_last_but_before_the_image():
    words = run(settings(options=("--cap-add", "SYS_NICE")))
    assert words[words.index("--cap-add") :][:5] == [
        *("--cap-add", "SYS_NICE", "--entrypoint", "python3"),
        "lmsysorg/sglang:v0.5.17",
    ]


@pytest.mark.parametrize(("user", "number"), [("1000", "1000"), ("1000:50", "1000:50")])
def test_a_user_by_number(user, number):
    assert values(run(user=user), "--user") == [number]


def test_a_user_by_name_is_the_host_s():
    entry = pwd.getpwuid(os.getuid())
    assert values(run(user=entry.pw_name), "--user") == [f"{entry.pw_uid}:{entry.pw_gid}"]
    assert "--user" not in run()


def test_a_user_that_does_not_exist():
    with pytest.raises(ContainerError, match="'no-such-user' does not exist"):
        run(user="no-such-user")


def test_the_working_directory():
    assert values(run(working_directory="/srv/x"), "--workdir") == ["/srv/x"]


def test_a_model_that_cannot_be_mounted():
    with pytest.raises(ContainerError, match="comma"):
        run(settings(folders=("/m/a,b",)))


def called(words, tmp_path):
    """Run the words, and see how they called the engine, which has two containers."""
    engine = tmp_path / "engine"
    engine.write_text('#!/bin/sh\necho "$@" >>"$0.calls"\n[ "$1" = ps ] && printf "id1\\nid2\\n"\nexit 1\n')
    engine.chmod(0o755)
    words = [str(engine) if word == "/usr/bin/docker" else word for word in words]
    os.spawnv(os.P_WAIT, words[0], words)
    return (tmp_path / "engine.calls").read_text().splitlines()


def test_what_is_left_is_removed_by_its_label(tmp_path):
    assert called(clear_words(settings(), PATHS), tmp_path) == [
        "ps --all --quiet --filter label=inferops.sglang.instance=main",
        "rm --force id1",
        "rm --force id2",
    ]


def test_what_still_runs_is_stopped_by_its_label(tmp_path):
    # The engine fails each time here, and nothing is left out.
    assert called(end_words(settings(), PATHS, 9.5), tmp_path) == [
        "ps --all --quiet --filter label=inferops.sglang.instance=main",
        "stop -t 10 id1",
        "rm --force id1",
        "stop -t 10 id2",
        "rm --force id2",
    ]


@pytest.mark.parametrize(
    ("engine", "path", "unit"),
    [
        ("docker", "/usr/bin/docker", "docker.service"),
        ("docker", "/snap/bin/docker", "snap.docker.dockerd.service"),
        ("podman", "/usr/bin/podman", ""),
    ],
)
def test_the_unit_of_the_daemon(engine, path, unit):
    assert daemon_unit(ContainerSettings(engine, path, "i")) == unit


def test_the_parser_runs_as_the_server_would_and_beside_it():
    given = settings(folders=("/m/target",), volumes=("/c:/c",), options=("--privileged",), image_id="sha256:1")
    words = probe_words(given, [Mount("/tmp/x", "/tmp/x")], ["HF_TOKEN", "PATH"], "python3", ["GPU-a"], "1000")
    assert " ".join(words) == (
        "/usr/bin/docker run --rm --pull never --init --network host --ipc host --ulimit memlock=-1:-1 "
        "--ulimit nofile=1048576:1048576 --pids-limit -1 --security-opt label=disable --log-driver none --interactive "
        '--label inferops.sglang.probe= --gpus "device=GPU-a" --env HF_TOKEN '
        "--mount type=bind,source=/m/target,target=/m/target,readonly "
        "--mount type=bind,source=/tmp/x,target=/tmp/x,readonly --user 1000 --volume /c:/c --privileged "
        "--entrypoint python3 sha256:1 -"
    )


def test_the_parser_has_nothing_of_the_server_s_that_would_be_in_its_way():
    for engine in ("docker", "podman"):
        words = probe_words(settings(engine), [], [], "python3")
        assert not {"--name", "--gpus", "--device", "--cgroups"}.intersection(words)
        assert not any("inferops.sglang.instance" in word for word in words)
