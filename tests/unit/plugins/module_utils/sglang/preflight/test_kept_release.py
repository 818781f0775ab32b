# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a release back to the request that gives it."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    build_argv,
    requested_fields,
    settings_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.kept_release import (
    request_of,
    settings_of,
    split_command,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import Request
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

PATHS = InstancePaths("main")
EAGLE3 = {
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/models/draft",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


def release(command, **changes):
    fields = {"id": "x", "created": "", "instance": "main", "manager": "systemd", "command": command}
    return Release(**dict(fields, **changes))


@pytest.mark.parametrize(
    "options",
    [
        {},
        EAGLE3,
        {**EAGLE3, "speculative_options": {"attention_mode": "decode", "adaptive": True, "ngram_external": ["a", "b"]}},
        {"served_model_name": "007", "tp_size": 8, "pp_size": 2, "dp_size": 2, "mem_fraction_static": 0.85},
        {"extra_args": ["--dtype", "bfloat16", "--trust-remote-code", "--json-model-override-args={}", "--seed", "-1"]},
        {"host": "::", "port": 31000, "max_running_requests": 250},
    ],
    ids=["plain", "eagle3", "further", "sizes", "extra", "address"],
)
def test_a_command_line_is_taken_apart_into_what_it_was_made_of(options):
    settings = settings_from({"model_path": "/models/target", "host": "127.0.0.1", "port": 30000, **options})
    again = settings_of(build_argv(settings), release(["python"]))
    assert build_argv(again) == build_argv(settings)
    assert requested_fields(again) == requested_fields(settings)


def test_the_addresses_that_a_command_leaves_out_come_from_the_release():
    settings = settings_of(["--model", "/m", "--tp", "2"], release(["python"], host="0.0.0.0", port=31000))
    assert (settings.model_path, settings.tp_size, settings.host, settings.port) == ("/m", 2, "0.0.0.0", 31000)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (["/py", "-m", "sglang.launch_server", "--tp", "2"], ("/py", ("-m", "sglang.launch_server"), ["--tp", "2"])),
        (["/py", "-m", "sglang", "serve", "--tp", "2"], ("/py", ("-m", "sglang", "serve"), ["--tp", "2"])),
        (["/usr/bin/serve"], ("/usr/bin/serve", (), [])),
    ],
)
def test_a_command_has_three_parts(command, parts):
    assert split_command(command) == parts


def test_the_file_of_secret_arguments_is_added_by_the_manager_and_left_out_here():
    command = ["/py", "-m", "sglang.launch_server", "--model-path", "/m", "--config", str(PATHS.secret_args_file)]
    request = request_of(release(command, secret_args={"api-key": "k"}), base())
    assert request.settings.extra_args == () and request.secret_args == {"api-key": "k"}
    own = request_of(release(command[:-1] + ["/my.yaml"]), base())
    assert own.settings.extra_args == ("--config", "/my.yaml")


def test_a_host_sees_its_gpus_by_the_environment_and_a_container_by_their_names():
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0", "A": "1"}
    common = {"environment": environment, "gpus": ["GPU-b", "GPU-a"]}
    host = request_of(release(["/py", "--model-path", "/m"], **common), base())
    assert (host.gpus, host.environment) == ((), environment)
    container = {"engine": "podman", "engine_path": "/usr/bin/podman", "image": "sglang:1"}
    inside = request_of(release(["/py", "--model-path", "/m"], container=container, **common), base())
    assert (inside.gpus, inside.environment) == (("GPU-b", "GPU-a"), {"A": "1"})


def base():
    return Request(settings_from({"model_path": "x"}), PATHS, "process", "python3", (), unmanaged="take_over")


def test_manager_and_user_are_the_releases_own_and_policies_are_those_of_the_run():
    request = request_of(release(["/py", "--model-path", "/m"], user="llm", working_directory="/srv"), base())
    assert (request.manager, request.user, request.working_directory) == ("systemd", "llm", "/srv")
    assert request.unmanaged == "take_over" and request.python == "/py"
