# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real main(), a tiny package `sglang` run by a real interpreter, and GPUs out of thin air."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuError,
    GpuIdentity,
    GpuReading,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_preflight
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.modules import sglang_preflight as documented_module

SERVER_ARGS = """
    import argparse
    import json

    class ServerArgs:
        @staticmethod
        def add_cli_args(parser):
            for name in ("--model-path", "--host", "--served-model-name", "--api-key", "--device", "--log-level"):
                parser.add_argument(name)
            for name in ("--port", "--tp-size", "--max-running-requests"):
                parser.add_argument(name, type=int)
            for name in ("algorithm", "draft-model-path"):
                parser.add_argument("--speculative-" + name)
            for name in ("num-steps", "eagle-topk", "num-draft-tokens"):
                parser.add_argument("--speculative-" + name, type=int)
            parser.add_argument("--enable-metrics", action="store_true")
            parser.add_argument("--speculative-adaptive", action="store_true")
            parser.add_argument("--speculative-adaptive-config")
            parser.add_argument("--speculative-ngram-max-bfs-breadth", type=int, default=10)

        def check_server_args(self):
            assert self.tp_size != 3, "3 ranks of secret s3cr3t-key and hf_s3cr3t"

    def prepare_server_args(argv):
        print("SGLang prints a lot", argv)
        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        if "--config" in argv:
            at = argv.index("--config")
            with open(argv[at + 1]) as stream:
                for line in stream:
                    name, value = line.strip().split(": ")
                    argv[at : at + 2] = ["--" + name, value.strip('"')]
        args = parser.parse_args(argv, ServerArgs())
        if args.speculative_adaptive_config:
            with open(args.speculative_adaptive_config) as stream:
                assert "1" in json.load(stream)
        if args.speculative_algorithm:
            args.max_running_requests = args.max_running_requests or 48
            if args.speculative_eagle_topk == 1:
                args.speculative_num_draft_tokens = args.speculative_num_steps + 1
        return args
"""


class Session:
    """An NVML session with healthy GPUs."""

    def __init__(self, count):
        self.system = SimpleNamespace(count=count)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def identify(self, indices):
        return tuple(
            GpuReading(i, GpuIdentity(i, f"GPU-{i}{i}{i}{i}", f"0000:0{i}:00.0", i, "NVIDIA H200")) for i in indices
        )


def failing(error):
    def opened(_timeout, _procfs):
        raise error

    return opened


@pytest.fixture
def gpus(monkeypatch):
    """Set what the host has; four GPUs at first."""

    def use(count=4, error=None):
        opened = failing(error) if error else lambda _timeout, _procfs: Session(count)
        monkeypatch.setattr(sglang_preflight, "open_session", opened)

    use()
    return use


@pytest.fixture
def options(tmp_path, gpus):
    """Options of a sound EAGLE-3 configuration."""
    for name, config in (
        ("target", {"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 64}),
        ("draft", {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 100, "hidden_size": 64}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_text("")
        (folder / "tokenizer.json").write_text("{}")
    package = tmp_path / "site" / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '0.5.17'\n")
    (package / "srt" / "__init__.py").write_text("")
    (package / "srt" / "server_args.py").write_text(textwrap.dedent(SERVER_ARGS))
    return {
        "manager": "process",
        **{name: str(tmp_path / name) for name in ("state_dir", "run_dir", "etc_dir", "unit_dir")},
        "python": sys.executable,
        "environment": {"PYTHONPATH": str(tmp_path / "site")},
        "model_path": str(tmp_path / "target"),
        "port": free_port(),
        "tp_size": 2,
        "max_running_requests": 64,
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(tmp_path / "draft"),
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 3,
    }


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def preflight(run_module, options, tmp_path):
    """Run the module with changed options; nothing may ever be written."""

    def run(check=False, diff=False, **changes):
        before = sorted(str(path) for path in tmp_path.rglob("*") if "__pycache__" not in str(path))
        args = {name: value for name, value in dict(options, **changes).items() if value is not None}
        code, result = run_module(sglang_preflight, args, check=check, diff=diff)
        assert sorted(str(path) for path in tmp_path.rglob("*") if "__pycache__" not in str(path)) == before
        return code, result

    return run


def of(result, name, status=None):
    return [c["message"] for c in result["checks"] if c["name"] == name and status in (None, c["status"])]


def test_a_sound_configuration(preflight, options):
    code, result = preflight()
    assert code == 0, result["msg"]
    assert result["changed"] is False
    assert {check["status"] for check in result["checks"]} <= {"ok"}, result["checks"]
    facts = result["sglang"]
    assert facts["command"] == [
        *(sys.executable, "-m", "sglang.launch_server", "--model-path", options["model_path"]),
        *("--host", "127.0.0.1", "--port", str(options["port"]), "--tp-size", "2", "--max-running-requests", "64"),
        *(
            "--speculative-algorithm",
            "EAGLE3",
            "--speculative-draft-model-path",
            options["speculative_draft_model_path"],
        ),
        *("--speculative-num-steps", "2", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"),
    ]
    assert facts["requested"]["speculative_num_steps"] == facts["effective"]["speculative_num_steps"] == 2
    assert facts["adjusted"] == {}
    assert facts["gpus"] == ["GPU-0000", "GPU-1111"]
    assert (facts["version"], facts["parser"]) == ("0.5.17", "sglang 0.5.17")
    assert (facts["instance"], facts["running"], facts["has_last_good"]) == ("main", None, False)


def test_check_mode_is_the_same(preflight):
    assert preflight(check=True)[1]["sglang"] == preflight()[1]["sglang"]


def test_every_returned_key_is_documented(preflight):
    documented = yaml.safe_load(documented_module.RETURN)
    result = preflight()[1]
    assert set(result) - {"changed", "invocation", "warnings", "deprecations"} == set(documented)
    assert set(result["sglang"]) == set(documented["sglang"]["contains"])
    assert {key for check in result["checks"] for key in check} == set(documented["checks"]["contains"])


def test_every_option_is_documented():
    documented = set(yaml.safe_load(documented_module.DOCUMENTATION)["options"]) | {"instance", "state_dir", "manager"}
    assert documented == set(sglang_preflight.argument_spec())


def test_all_problems_come_together(preflight, tmp_path):
    code, result = preflight(
        model_path=str(tmp_path / "none"),
        speculative_num_steps=None,
        tp_size=8,
        port=80,
        environment={"SGLANG_SIMULATE_ACC_LEN": "3"},
    )
    assert code == 1
    assert result["msg"].startswith("5 problems, nothing was touched: (1) ")
    for part in ("none does not exist", "without speculative_num_steps", "need 8 GPUs", "port 80", "SIMULATE_ACC_LEN"):
        assert part in result["msg"]
    # Ansible prints all of a failed result: nothing is in it that does not help.
    assert {check["status"] for check in result["checks"]} == {"failed"} and "sglang" not in result


def test_what_sglang_changes_is_reported(preflight):
    code, result = preflight(speculative_num_draft_tokens=8)
    assert code == 0
    assert result["sglang"]["adjusted"] == {"speculative_num_draft_tokens": {"requested": 8, "effective": 3}}
    assert len(of(result, "speculation", "warning")) == 1 and not of(result, "adjusted")
    assert len(result["warnings"]) == 1


def test_what_sglang_refuses_is_refused_without_secrets(preflight, options):
    environment = dict(options["environment"], HF_TOKEN="hf_s3cr3t")
    code, result = preflight(tp_size=3, environment=environment, secret_args={"api-key": "s3cr3t-key"})
    assert code == 1
    assert "SGLang 0.5.17 refuses the arguments: AssertionError: 3 ranks" in result["msg"]
    assert "s3cr3t" not in json.dumps(result)


def test_secrets_are_in_no_result(preflight, options):
    environment = dict(options["environment"], HF_TOKEN="hf_s3cr3t", MY_PASSWORD="p-s3cr3t")
    code, result = preflight(environment=environment, secret_args={"api-key": "s3cr3t-key"})
    assert code == 0
    assert "s3cr3t" not in json.dumps(result)
    assert "--api-key" not in result["sglang"]["command"]
    assert result["sglang"]["environment"]["HF_TOKEN"] == "********"
    assert result["sglang"]["environment"]["PYTHONPATH"] == options["environment"]["PYTHONPATH"]
    for words in (["--api-key", "s3cr3t-key"], ["--admin-api-key=s3cr3t-key"]):
        code, result = preflight(extra_args=words)
        assert code == 1 and "secret_args" in result["msg"]
        assert "s3cr3t" not in json.dumps(result)


def test_a_secret_argument_that_sglang_does_not_know_is_refused(preflight):
    code, result = preflight(secret_args={"no-such-key": "s3cr3t-key"})
    assert code == 1 and "--no-such-key" in result["msg"]


def test_environment_values_do_not_blank_out_the_result(preflight, options):
    result = preflight(
        environment=dict(options["environment"], A="1", B="2", C="true", TOKENIZERS_PARALLELISM="false")
    )[1]
    assert result["sglang"]["requested"]["tp_size"] == 2
    assert "VALUE_SPECIFIED" not in json.dumps({key: value for key, value in result.items() if key != "invocation"})


def test_ansible_does_not_log_the_environment_on_the_host(preflight, options, monkeypatch):
    logged = []
    monkeypatch.setattr(
        sglang_preflight.AnsibleModule, "log", lambda self, msg, log_args=None: logged.append(f"{msg} {log_args}")
    )
    preflight(environment=dict(options["environment"], HF_TOKEN="hf_s3cr3t"), secret_args={"api-key": "s3cr3t-key"})
    assert logged and "s3cr3t" not in "".join(logged)


def test_without_speculation(preflight):
    code, result = preflight(speculative_algorithm="none", extra_args=["--speculative-adaptive", "--enable-metrics"])
    assert code == 0, result["msg"]
    assert not [word for word in result["sglang"]["command"] if "speculative" in word]
    assert result["sglang"]["requested"]["speculative_algorithm"] is None
    assert result["sglang"]["effective"]["speculative_algorithm"] is None
    assert result["sglang"]["effective"]["enable_metrics"] is True


def test_a_selection_becomes_part_of_the_environment(preflight):
    result = preflight(gpus=["3", "GPU-1111"])[1]
    assert result["sglang"]["gpus"] == ["GPU-1111", "GPU-3333"]
    assert result["sglang"]["environment"]["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert result["sglang"]["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_gpus_that_cannot_be_listed_are_an_error_beside_all_others(preflight, gpus):
    gpus(error=GpuError(Failure("lost", "The driver is gone", "Load it")))
    code, result = preflight(port=80)
    assert code == 1 and "The driver is gone. Load it." in result["msg"] and "port 80" in result["msg"]
    gpus(error=PynvmlMissing("trace"))
    assert "nvidia-ml-py" in preflight()[1]["msg"]
    gpus(count=7)
    assert "expected_count is 8" in preflight(expected_count=8)[1]["msg"]


def test_a_port_of_somebody_else(preflight):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, result = preflight(port=server.getsockname()[1])
    assert code == 1 and f"PID {os.getpid()}" in result["msg"]


LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listening():
    """A process in a session of its own that listens: (what ProcFs says of it, its port)."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield ProcFs().read(process.pid), int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()


def test_the_running_instance_may_have_the_port(preflight, tmp_path, listening):
    server, port = listening
    (tmp_path / "run_dir").mkdir()
    record = {"pid": server.pid, "start_ticks": server.start_time, "boot_id": ProcFs().boot_id(), "release": "r1"}
    (tmp_path / "run_dir" / "main.json").write_text(json.dumps(dict(record, command_sha256="x")))
    code, result = preflight(port=port)
    assert code == 0, result["msg"]
    documented = yaml.safe_load(documented_module.RETURN)["sglang"]["contains"]["running"]["contains"]
    assert set(result["sglang"]["running"]) == set(documented)
    assert result["sglang"]["running"]["pid"] == server.pid and result["sglang"]["running"]["release"] == "r1"


def test_a_broken_pid_file_is_found_in_time(preflight, tmp_path):
    (tmp_path / "run_dir").mkdir()
    (tmp_path / "run_dir" / "main.json").write_text("{")
    code, result = preflight()
    assert code == 1 and "main.json" in result["msg"]


@pytest.mark.parametrize("link", ["current", "last_good"])
def test_a_broken_release_is_found_in_time(preflight, tmp_path, link):
    folder = tmp_path / "state_dir" / "main"
    (folder / "releases" / "r1").mkdir(parents=True)
    (folder / "releases" / "r1" / "release.json").write_text("{")
    (folder / link).symlink_to("releases/r1")
    code, result = preflight()
    assert code == 1 and f"{link}/release.json" in result["msg"]


@pytest.mark.parametrize(
    ("setting", "code", "status"), [("auto", 0, "warning"), ("required", 1, "failed"), ("skip", 0, "skipped")]
)
def test_a_parser_that_cannot_be_imported(preflight, tmp_path, setting, code, status):
    (tmp_path / "site" / "sglang" / "srt" / "server_args.py").write_text("import no_such_dependency\n")
    rc, result = preflight(parser=setting, speculative_num_draft_tokens=8)
    assert rc == code
    assert of(result, "parser", status)
    if not code:
        assert result["sglang"]["parser"].startswith("not run: ")
        assert result["sglang"]["effective"]["speculative_num_draft_tokens"] == 3


@pytest.mark.parametrize(("launch", "code"), [(["-m", "sglang.launch_server"], 1), (["/opt/wrapper.py"], 0)])
def test_an_interpreter_without_sglang(preflight, launch, code):
    rc, result = preflight(environment={}, launch=launch)
    assert rc == code
    assert of(result, "parser", "failed" if code else "warning")


def test_a_parser_that_hangs(preflight, tmp_path):
    (tmp_path / "site" / "sglang" / "srt" / "server_args.py").write_text("import time\ntime.sleep(60)\n")
    code, result = preflight(parser_timeout=1)
    assert code == 1 and "parser_timeout" in result["msg"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"nvml_timeout": -1}, "nvml_timeout is -1"),
        ({"nvml_timeout": "inf"}, "nvml_timeout is inf"),
        ({"parser_timeout": 0}, "parser_timeout is 0"),
        ({"expected_count": 0}, "expected_count is 0"),
        ({"model_path": " "}, "model_path is empty"),
        ({"instance": "a/b"}, "instance: 'a/b'"),
        ({"tp_size": 0}, "tp_size is 0"),
        ({"dp_size": -2}, "dp_size is -2"),
        ({"mem_fraction_static": 1.5}, "mem_fraction_static is 1.5"),
        ({"max_running_requests": 0}, "max_running_requests is 0"),
        ({"served_model_name": "a:b"}, "served_model_name 'a:b'"),
        ({"extra_args": ["--nnodes", "2", "--node-rank", "0"]}, "--nnodes 2 in extra_args without --dist-init-addr"),
        ({"python": "bin/python"}, "python: bin/python"),
        ({"user": "no-such-user"}, "user 'no-such-user'"),
        ({"working_directory": "/no/folder"}, "working_directory: /no/folder"),
    ],
)
def test_impossible_options_are_named(preflight, changes, part):
    code, result = preflight(**changes)
    assert code == 1 and part in result["msg"], result["msg"]


def test_eagle_without_a_draft_model(preflight):
    code, result = preflight(speculative_algorithm="EAGLE", speculative_draft_model_path=None)
    assert code == 0 and of(result, "speculative_draft_model_path", "warning")


def test_systemd_is_asked_under_that_manager(preflight, monkeypatch):
    asked = []

    def answer(command, *_args, **_options):
        asked.append(command)
        properties = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": os.getpid()}
        properties.update(Result="success", ExecMainCode=0, ExecMainStatus=0, NRestarts=0)
        return Completed(0, "\n".join(f"{name}={value}" for name, value in properties.items()))

    monkeypatch.setattr(sglang_preflight.commands, "run", answer)
    code, result = preflight(manager="systemd")
    assert code == 0, result["msg"]
    assert asked and asked[0][0] == "systemctl"
    assert result["sglang"]["running"]["unit"] == "sglang-main.service"


def test_a_host_without_systemd(preflight, monkeypatch):
    monkeypatch.setattr(
        sglang_preflight.commands,
        "run",
        lambda command, *_args, **_options: Completed(1, "", "System has not been booted with systemd"),
    )
    code, result = preflight(manager="systemd")
    assert code == 1 and "set manager to process" in result["msg"]


# -- speculative settings as data

ADAPTIVE = {"adaptive": True, "adaptive_config": {"32": {"candidate_steps": [0]}, "1": {"candidate_steps": [1, 2]}}}


def test_an_adaptive_configuration_becomes_a_file_of_the_release(preflight, tmp_path):
    code, result = preflight(speculative_options=ADAPTIVE)
    assert code == 0, result["msg"]
    facts = result["sglang"]
    path = str(tmp_path / "state_dir" / "main" / "current" / "adaptive.json")
    assert facts["command"][-3:] == ["--speculative-adaptive", "--speculative-adaptive-config", path]
    assert list(json.loads(facts["files"]["adaptive.json"])) == ["1", "32"]
    # The parser has read it, and under the name that the server will see.
    assert facts["parser"] == "sglang 0.5.17"
    assert (
        facts["requested"]["speculative_adaptive_config"] == facts["effective"]["speculative_adaptive_config"] == path
    )
    assert facts["requested"]["speculative_adaptive"] is facts["effective"]["speculative_adaptive"] is True
    assert facts["adjusted"] == {}


def test_tiers_that_are_never_reached_are_reported(preflight):
    result = preflight(speculative_options=ADAPTIVE, max_running_requests=None)[1]
    assert not of(result, "adaptive")
    config = {"1": {"candidate_steps": [2]}, "64": {"candidate_steps": [0]}}
    options = {"adaptive": "true", "adaptive_config": config}
    (message,) = of(preflight(speculative_options=options, max_running_requests=None)[1], "adaptive", "warning")
    assert "48 requests" in message and "64" in message


def test_measurements_of_another_model_are_refused_and_of_another_version_reported(preflight, options):
    measured = {"sweep": "steps", "model_path": options["model_path"], "versions": ["0.5.16"]}
    code, result = preflight(measured=measured)
    assert code == 0, result["msg"]
    (message,) = of(result, "measured", "warning")
    assert "0.5.16" in message and "0.5.17" in message
    code, result = preflight(measured={**measured, "model_path": "/models/another"})
    assert code == 1 and "/models/another" in result["msg"]


def test_further_options_are_rendered_and_requested(preflight):
    options = {"ngram_max_bfs_breadth": "8", "adaptive": False}
    code, result = preflight(
        speculative_algorithm="ngram",
        speculative_options=options,
        **dict.fromkeys(
            ("speculative_draft_model_path", "speculative_num_steps", "speculative_eagle_topk"),
        ),
        speculative_num_draft_tokens=None,
    )
    assert code == 0, result["msg"]
    assert result["sglang"]["command"][-2:] == ["--speculative-ngram-max-bfs-breadth", "8"]
    assert result["sglang"]["requested"]["speculative_ngram_max_bfs_breadth"] == 8
    assert result["sglang"]["adjusted"] == {}


def test_no_speculation_drops_them_and_says_so(preflight):
    code, result = preflight(speculative_algorithm="none", speculative_options=ADAPTIVE)
    assert code == 0, result["msg"]
    assert not [word for word in result["sglang"]["command"] if "speculative" in word]
    assert result["sglang"]["files"] == {}
    (message,) = of(result, "arguments", "ok")
    assert "speculative_adaptive" in message and "speculative_num_steps" in message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"extra_args": ["--enable-metric"]}, ["--enable-metric", "would be read as --enable-metrics"]),
        ({"extra_args": ["--log-levle", "info"]}, ["--log-levle", "did you mean --log-level?"]),
        ({"speculative_options": {"adaptve": True}}, ["speculative_options", "did you mean --speculative-adaptive?"]),
        ({"speculative_options": {"ngram_max": 3}}, ["would be read as --speculative-ngram-max-bfs-breadth"]),
        ({"speculative_options": {"num_steps": 3}}, ["give it as speculative_num_steps"]),
        ({"speculative_options": {"a b": 3}}, ["no name of an option"]),
        (
            {"speculative_options": {"adaptive": True}, "extra_args": ["--speculative-adaptive"]},
            ["repeats adaptive of speculative_options"],
        ),
        ({"speculative_options": ADAPTIVE, "speculative_eagle_topk": 2}, ["speculative_eagle_topk 2", "Set it to 1"]),
        ({"speculative_options": ADAPTIVE, "speculative_num_steps": 4}, ["speculative_num_steps 4", "0, 1, 2"]),
    ],
)
def test_wrong_names_and_combinations_are_refused_with_the_remedy(preflight, changes, parts):
    code, result = preflight(**changes)
    assert code == 1
    assert all(part in result["msg"] for part in parts), result["msg"]


# -- what changes


def release_of(facts, **changes):
    """What sglang_release would have written for the result of a preflight."""
    names = ("requested", "effective", "adjusted", "gpus", "container", "files", "patches", "environment", "command")
    content = {name: facts[name] for name in names}
    content.update(format=1, id="r1", created="2026-11-30T10:00:00Z", instance="main", manager="process", **changes)
    return content


@pytest.fixture
def deployed(tmp_path):
    """Make a release the current one."""

    def write(content):
        folder = tmp_path / "state_dir" / "main" / "releases" / content["id"]
        folder.mkdir(parents=True)
        (folder / "release.json").write_text(json.dumps(content))
        (folder.parent.parent / "current").symlink_to(f"releases/{content['id']}")

    return write


def test_the_first_deployment(preflight):
    _code, result = preflight(diff=True)
    assert result["sglang"]["changes"] == ["first deployment of this instance"]
    assert result["diff"]["before"] == "" and "  --tp-size 2\n" in result["diff"]["after"]
    assert "diff" not in preflight()[1]


def test_nothing_changes(preflight, deployed):
    deployed(release_of(preflight()[1]["sglang"]))
    result = preflight(diff=True)[1]
    assert result["sglang"]["changes"] == []
    assert result["diff"]["before"] == result["diff"]["after"]


def test_the_same_secret_arguments_are_no_change(preflight, deployed, options, tmp_path):
    secret = {"api-key": "s3cr3t-key"}
    before = release_of(preflight(secret_args=secret)[1]["sglang"], secret_args=secret)
    before["command"] += ["--config", str(tmp_path / "etc_dir" / "main" / "secrets.yaml")]  # as sglang_release does
    deployed(before)
    assert preflight(secret_args=secret)[1]["sglang"]["changes"] == []


def test_what_changes_is_said_in_lines_without_secrets(preflight, deployed, options, tmp_path):
    before = release_of(
        preflight(extra_args=["--log-level", "info"])[1]["sglang"], secret_args={"api-key": "old-s3cr3t"}
    )
    before["environment"]["HF_TOKEN"] = "hf-old-s3cr3t"
    before["command"] += ["--config", str(tmp_path / "etc_dir" / "main" / "secrets.yaml")]
    deployed(before)
    result = preflight(
        diff=True,
        speculative_num_steps=3,
        speculative_num_draft_tokens=4,
        extra_args=["--enable-metrics"],
        secret_args={"api-key": "new-s3cr3t"},
        environment=dict(options["environment"], NCCL_NVLS_ENABLE=1, HF_TOKEN="hf-new-s3cr3t"),
    )[1]
    assert result["sglang"]["changes"] == [
        "--speculative-num-steps: 2 -> 3",
        "--speculative-num-draft-tokens: 3 -> 4",
        "--enable-metrics: added",
        "--log-level: removed (info)",
        "api-key: changed (not shown)",
        "environment HF_TOKEN: changed (not shown)",
        "environment NCCL_NVLS_ENABLE: added (1)",
    ]
    assert "s3cr3t" not in json.dumps(result)
    assert "  --api-key ********\n" in result["diff"]["after"]
    assert "  --log-level info\n" in result["diff"]["before"]


def test_another_limit_of_running_requests_is_reported(preflight, deployed):
    deployed(release_of(preflight()[1]["sglang"]))
    assert not of(preflight()[1], "concurrency")
    (message,) = of(preflight(max_running_requests=None)[1], "concurrency", "warning")
    assert "48" in message and "64" in message
    assert of(preflight(max_running_requests=None, speculative_algorithm="none")[1], "concurrency", "warning")


# -- the rest of the host


def test_another_manager_stops_what_runs(preflight, deployed, tmp_path, listening):
    server, port = listening
    deployed(dict(release_of(preflight()[1]["sglang"]), manager="process"))
    (tmp_path / "run_dir").mkdir()
    record = {"pid": server.pid, "start_ticks": server.start_time, "boot_id": ProcFs().boot_id(), "release": "r1"}
    (tmp_path / "run_dir" / "main.json").write_text(json.dumps(dict(record, command_sha256="x")))
    with pytest.MonkeyPatch.context() as patch:
        state = (
            "LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\nExecMainCode=0\nExecMainStatus=0\n"
        )
        patch.setattr(sglang_preflight.commands, "run", lambda *_args, **_options: Completed(0, state))
        code, result = preflight(manager="systemd", port=port)
    assert code == 0, result["msg"]
    assert result["sglang"]["running"]["manager"] == "process" and result["sglang"]["running"]["pid"] == server.pid
    assert "manager: process -> systemd" in result["sglang"]["changes"]


def test_a_lock_that_nobody_holds_is_named(preflight, options, tmp_path):
    folder = tmp_path / "extensions" / "py312" / "kernel"
    folder.mkdir(parents=True)
    lock = folder / "lock"
    lock.write_text("")
    os.utime(lock, (1, 1))
    environment = dict(options["environment"], TORCH_EXTENSIONS_DIR=str(tmp_path / "extensions"))
    (message,) = of(preflight(environment=environment)[1], "caches", "warning")
    assert str(lock) in message and f"rm {lock}" in message
    with open(lock):
        assert not of(preflight(environment=environment)[1], "caches", "warning")


def test_weights_from_the_future_mean_a_wrong_clock(preflight, options):
    weights = os.path.join(options["model_path"], "model.safetensors")
    os.utime(weights, (4e9, 4e9))
    (message,) = of(preflight()[1], "clock", "warning")
    assert weights in message


def test_a_full_disk_is_refused(preflight, monkeypatch):
    monkeypatch.setattr(sglang_preflight, "free_space", lambda _path: 10)
    code, result = preflight()
    assert code == 1 and "10 MiB are free" in result["msg"]


def test_simulated_results_are_refused(preflight, options):
    code, result = preflight(environment=dict(options["environment"], SGLANG_SIMULATE_UNIFORM_EXPERTS="1"))
    assert code == 1 and "SGLANG_SIMULATE_UNIFORM_EXPERTS" in result["msg"]


# -- in a container

# Answers like docker, and runs what it is told to run on this host.
ENGINE = """#!/bin/sh
echo "$*" >> "{log}"
case "$1 $2" in
  "version "*) echo 28.0.1 ;;
  "image inspect") [ "$5" = "sglang:1" ] && echo sha256:1234567890abcdef ;;
  "inspect "*) echo "Error: no such object" >&2; exit 1 ;;
  "info "*) echo '{{"nvidia": {{}}, "runc": {{}}}}' ;;
  "run "*) exec "{python}" - ;;
  *) exit 2 ;;
esac
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A docker on the PATH, beside a systemd that has never heard of the unit; returns what it was told."""
    log = tmp_path / "engine.log"
    log.write_text("")
    script = tmp_path / "bin" / "docker"
    script.parent.mkdir()
    script.write_text(ENGINE.format(log=log, python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    real = sglang_preflight.commands.run

    def run(argv, *args, **options):
        if argv[0] == "systemctl":
            if "--value" in argv:
                return Completed(0, "loaded\n")
            state = "LoadState=loaded\nActiveState=inactive\nSubState=dead\n"
            return Completed(0, state + "MainPID=0\nExecMainCode=0\nExecMainStatus=0\n")
        return real(argv, *args, **options)

    monkeypatch.setattr(sglang_preflight.commands, "run", run)
    return log


def test_in_a_container_the_images_parser_is_asked(preflight, options, engine):
    code, result = preflight(
        manager="systemd",
        container={"image": "sglang:1"},
        python="python3",
        gpus=["2", "3"],
        secret_args={"api-key": "k3y"},
    )
    assert code == 0, result["msg"]
    facts = result["sglang"]
    assert facts["parser"] == "sglang 0.5.17" and facts["effective"]["speculative_num_steps"] == 2
    assert facts["command"][:3] == ["python3", "-m", "sglang.launch_server"]
    # The container is given these two GPUs alone, and counts them anew.
    assert facts["gpus"] == ["GPU-2222", "GPU-3333"]
    assert facts["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert facts["container"]["image_id"] == "sha256:1234567890abcdef"
    assert facts["container"]["folders"] == sorted([options["model_path"], options["speculative_draft_model_path"]])
    (run,) = [line for line in engine.read_text().splitlines() if line.startswith("run ")]
    # Without them it would refuse what only certain GPUs can do.
    assert "sha256:1234567890abcdef" in run and '--gpus "device=GPU-2222,GPU-3333"' in run
    assert options["environment"]["PYTHONPATH"] not in run
    assert not [check for check in result["checks"] if check["name"] in ("python", "caches")]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"container": {"image": "sglang:2"}}, "docker pull sglang:2"),
        ({"container": {"image": "sglang:1", "options": ["--rm"]}}, "--rm is not yours to give"),
        ({"container": {"image": "sglang:1", "volumes": ["/no/such/folder:/x"]}}, "/no/such/folder"),
        ({"container": {"image": "sglang:1", "engine": "podman"}}, "podman"),
        ({"container": {"image": "a b"}}, "is not the name of an image"),
        ({"manager": "process"}, "container needs manager systemd"),
        ({"extra_args": ["--base-gpu-id", "2"]}, "--base-gpu-id in extra_args counts GPUs of the host"),
    ],
)
def test_containers_that_cannot_be(preflight, engine, changes, part):
    given = dict({"manager": "systemd", "container": {"image": "sglang:1"}, "python": "python3"}, **changes)
    code, result = preflight(**given)
    assert code == 1 and part in result["msg"], result["msg"]


def test_in_a_container_numbers_of_the_hosts_gpus_mean_nothing(preflight, options, engine):
    environment = dict(options["environment"], CUDA_VISIBLE_DEVICES="0,1")
    code, result = preflight(
        manager="systemd", container={"image": "sglang:1"}, python="python3", environment=environment
    )
    assert code == 1 and "CUDA_VISIBLE_DEVICES in environment" in result["msg"]


def test_a_model_inside_the_image_is_not_looked_at(preflight, engine):
    code, result = preflight(
        manager="systemd", container={"image": "sglang:1"}, python="python3", model_path="/in/the/image"
    )
    assert code == 0, result["msg"]
    assert of(result, "model_path", "warning")


# -- patches, neighbours and servers of others


@pytest.fixture
def patched(tmp_path):
    """A file of the installed SGLang, and the patch of it."""
    path = tmp_path / "site" / "sglang" / "srt" / "speculative" / "eagle_worker_v2.py"
    path.parent.mkdir()
    path.write_text("x = 1\n")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    target = "sglang/srt/speculative/eagle_worker_v2.py"
    return {"target": target, "sha256_before": before, "content": "x = 2\n", "src": "worker.py"}, path


def test_a_patch_is_found_in_the_installed_package(preflight, patched):
    patch, path = patched
    code, result = preflight(patches=[patch])
    assert code == 0, result["msg"]
    (shown,) = result["sglang"]["patches"]
    documented = yaml.safe_load(documented_module.RETURN)["sglang"]["contains"]["patches"]["contains"]
    assert set(shown) == set(documented)
    assert shown["path"] == str(path) and shown["src"] == "worker.py"
    assert shown["sha256_after"] == hashlib.sha256(b"x = 2\n").hexdigest()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sha256_before": "0" * 64}, "has the checksum"),
        ({"target": "sglang/srt/speculative/eagle_worker.py"}, "does not exist in the installed SGLang"),
        ({"content": "x =\n"}, "no valid Python"),
        ({"target": "../etc/passwd"}, "no file of the package"),
    ],
)
def test_patches_that_do_not_fit_are_refused(preflight, patched, changes, part):
    code, result = preflight(patches=[dict(patched[0], **changes)])
    assert code == 1 and part in result["msg"], result["msg"]


def test_a_server_started_by_hand(preflight, tmp_path):
    """It is known by its command line, so a package of that name must run it."""
    package = tmp_path / "hand" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(LISTEN)
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sglang.launch_server",
            "--model-path",
            "/m",
            "--port",
            str(port),
            "--api-key",
            "k-s3cr3t",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=dict(os.environ, PYTHONPATH=str(tmp_path / "hand"), PYTHONDONTWRITEBYTECODE="1"),
    )
    try:
        process.stdout.readline()
        code, result = preflight(port=port)
        assert code == 1 and f"PID {process.pid}" in result["msg"] and "take_over" in result["msg"]
        code, result = preflight(port=port, unmanaged="take_over")
        assert code == 0, result["msg"]
        documented = yaml.safe_load(documented_module.RETURN)["sglang"]["contains"]["unmanaged"]["contains"]
        assert set(result["sglang"]["unmanaged"]) == set(documented)
        assert result["sglang"]["unmanaged"]["pid"] == process.pid
        assert "s3cr3t" not in json.dumps(result)
    finally:
        process.stdin.close()
        process.wait()


def test_a_neighbour_with_the_same_gpus_is_refused(preflight, tmp_path, listening):
    server, _port = listening
    facts = preflight()[1]["sglang"]
    content = dict(release_of(facts), instance="second", port=20000)
    folder = tmp_path / "state_dir" / "second" / "releases" / "r1"
    folder.mkdir(parents=True)
    (folder / "release.json").write_text(json.dumps(content))
    (folder.parent.parent / "current").symlink_to("releases/r1")
    (tmp_path / "run_dir").mkdir()
    record = {"pid": server.pid, "start_ticks": server.start_time, "boot_id": ProcFs().boot_id(), "release": "r1"}
    (tmp_path / "run_dir" / "second.json").write_text(json.dumps(dict(record, command_sha256="x")))
    code, result = preflight()
    assert code == 1 and "in use by the instance second" in result["msg"]
    code, result = preflight(gpus=["2", "3"])
    assert code == 0, result["msg"]
    documented = yaml.safe_load(documented_module.RETURN)["sglang"]["contains"]["neighbours"]["contains"]
    (neighbour,) = result["sglang"]["neighbours"]
    assert set(neighbour) == set(documented) and neighbour["pid"] == server.pid


# -- a release that is kept

KEPT = "20261130T100000Z-0a1b2c3d"


@pytest.fixture
def kept(run_module, preflight, deployed, options, tmp_path):
    """Make a release of the sound configuration, then check it as a run that goes back to it does."""

    def check(wanted=KEPT, change=None, **more):
        content = release_of(preflight()[1]["sglang"], sglang_version="0.5.17", port=options["port"])
        content["id"] = KEPT
        (change or (lambda _content: None))(content)
        deployed(content)
        own = ("manager", "state_dir", "run_dir", "etc_dir", "unit_dir")
        return run_module(sglang_preflight, {**{name: options[name] for name in own}, "release": wanted, **more})

    return check


def test_a_kept_release_is_checked_as_it_is(kept, options):
    code, result = kept()
    assert code == 0, result["msg"]
    facts = result["sglang"]
    assert (facts["release"], facts["gpus"], facts["changes"]) == (KEPT, ["GPU-0000", "GPU-1111"], [])
    assert facts["requested"]["speculative_num_steps"] == facts["effective"]["speculative_num_steps"] == 2
    assert {check["status"] for check in result["checks"]} <= {"ok"}, result["checks"]


@pytest.mark.parametrize(
    ("gone", "words"),
    [("draft", "speculative_draft_model_path"), ("target", "model_path")],
)
def test_a_kept_release_whose_model_is_gone_is_refused(kept, tmp_path, gone, words):
    code, result = kept(change=lambda _content: (tmp_path / gone).rename(tmp_path / "elsewhere"))
    assert code == 1 and words in result["msg"] and "does not exist" in result["msg"]


def test_a_kept_release_that_the_present_sglang_refuses_is_refused(kept):
    code, result = kept(change=lambda content: content["command"].append("--gone-in-this-version"))
    assert code == 1 and "--gone-in-this-version" in result["msg"]


def test_another_version_than_the_releases_is_said(kept):
    code, result = kept(change=lambda content: content.update(sglang_version="0.5.12"))
    assert code == 0 and "0.5.12" in of(result, "version", "warning")[0]


def test_what_has_served_may_break_a_rule_of_good_sense(kept):
    def without_algorithm(content):
        at = content["command"].index("--speculative-algorithm")
        del content["command"][at : at + 2]

    code, result = kept(change=without_algorithm)
    assert code == 0, result["msg"]
    assert "without speculative_algorithm" in of(result, "speculation", "warning")[0]


@pytest.mark.parametrize(("wanted", "words"), [("r9", "no release 'r9'"), ("previous", "no proven release")])
def test_a_release_that_is_not_kept(kept, wanted, words):
    code, result = kept(wanted)
    assert code == 1 and words in result["msg"]


@pytest.mark.parametrize(("more", "words"), [({"model_path": "/m"}, "mutually exclusive")])
def test_a_release_has_its_own_configuration(kept, more, words):
    code, result = kept(**more)
    assert code == 1 and words in result["msg"]


def test_a_release_or_a_model_is_needed(preflight):
    code, result = preflight(model_path=None)
    assert code == 1 and "model_path, release" in result["msg"]
