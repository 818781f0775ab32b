# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real main(), a tiny package `sglang` run by a real interpreter, and GPUs out of thin air."""

from __future__ import annotations

import json
import os
import socket
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
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.modules import sglang_preflight

SERVER_ARGS = """
    import argparse

    class Args:
        def check_server_args(self):
            assert self.tp_size != 3, "3 ranks of secret s3cr3t-key and hf_s3cr3t"

    def prepare_server_args(argv):
        print("SGLang prints a lot", argv)
        parser = argparse.ArgumentParser()
        for name in ("--model-path", "--host", "--served-model-name", "--api-key", "--device", "--log-level"):
            parser.add_argument(name)
        for name in ("--port", "--tp-size", "--max-running-requests"):
            parser.add_argument(name, type=int)
        for name in ("algorithm", "draft-model-path"):
            parser.add_argument("--speculative-" + name)
        for name in ("num-steps", "eagle-topk", "num-draft-tokens"):
            parser.add_argument("--speculative-" + name, type=int)
        parser.add_argument("--enable-metrics", action="store_true")
        if "--config" in argv:
            at = argv.index("--config")
            with open(argv[at + 1]) as stream:
                for line in stream:
                    name, value = line.strip().split(": ")
                    argv[at : at + 2] = ["--" + name, value.strip('"')]
        args = parser.parse_args(argv, Args())
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

    def run(check=False, **changes):
        before = sorted(str(path) for path in tmp_path.rglob("*") if "__pycache__" not in str(path))
        args = {name: value for name, value in dict(options, **changes).items() if value is not None}
        code, result = run_module(sglang_preflight, args, check=check)
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
    documented = yaml.safe_load(sglang_preflight.RETURN)
    result = preflight()[1]
    assert set(result) - {"changed", "invocation", "warnings", "deprecations"} == set(documented)
    assert set(result["sglang"]) == set(documented["sglang"]["contains"])
    assert {key for check in result["checks"] for key in check} == set(documented["checks"]["contains"])


def test_every_option_is_documented():
    documented = set(yaml.safe_load(sglang_preflight.DOCUMENTATION)["options"]) | {"instance", "state_dir", "manager"}
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
    assert of(result, "parser", "skipped")
    assert result["sglang"]["parser"] == "not run: other problems come first"


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


def test_the_running_instance_may_have_the_port(preflight, options, tmp_path):
    me = ProcFs().read(os.getpid())
    if me.session != me.pid:
        leader = ProcFs().read(me.session)
        if leader is None:
            pytest.skip("the leader of this session is not to be seen")
        me = leader
    (tmp_path / "run_dir").mkdir()
    record = {"pid": me.pid, "start_ticks": me.start_time, "boot_id": ProcFs().boot_id(), "release": "r1"}
    (tmp_path / "run_dir" / "main.json").write_text(json.dumps(dict(record, command_sha256="x")))
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, result = preflight(port=server.getsockname()[1])
    assert code == 0, result["msg"]
    documented = yaml.safe_load(sglang_preflight.RETURN)["sglang"]["contains"]["running"]["contains"]
    assert set(result["sglang"]["running"]) == set(documented)
    assert result["sglang"]["running"]["pid"] == me.pid and result["sglang"]["running"]["release"] == "r1"


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

    def answer(self, command, **_options):
        asked.append(command)
        properties = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": os.getpid()}
        properties.update(Result="success", ExecMainCode=0, ExecMainStatus=0, NRestarts=0)
        return 0, "\n".join(f"{name}={value}" for name, value in properties.items()), ""

    monkeypatch.setattr(sglang_preflight.AnsibleModule, "run_command", answer)
    code, result = preflight(manager="systemd")
    assert code == 0, result["msg"]
    assert asked and asked[0][0] == "systemctl"
    assert result["sglang"]["running"]["unit"] == "sglang-main.service"


def test_a_host_without_systemd(preflight, monkeypatch):
    monkeypatch.setattr(
        sglang_preflight.AnsibleModule,
        "run_command",
        lambda self, command, **_options: (1, "", "System has not been booted with systemd"),
    )
    code, result = preflight(manager="systemd")
    assert code == 1 and "set manager to process" in result["msg"]
