# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each module of a deployment is called with: pure, no I/O.

settings are the variables of the role sglang_deploy without their prefix, the profile among them; facts are what the
modules before have found, by the names under which the role registers it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

Settings = Mapping[str, Any]
Facts = Mapping[str, Any]

# Of the settings of speculation those that are options of their own of sglang_preflight.
_OWN_OPTIONS = ("draft_model_path", "num_steps", "eagle_topk", "num_draft_tokens")


def _given(**options: Any) -> Dict[str, Any]:
    """Those that were given: an empty string stands for nothing."""
    return {name: value for name, value in options.items() if value is not None and value != ""}


def _instance(settings: Settings) -> Dict[str, Any]:
    return {"instance": settings["instance"], "state_dir": settings["state_dir"]}


def _checked(facts: Facts) -> Mapping[str, Any]:
    found: Mapping[str, Any] = facts["sglang_deploy_checked"]["sglang"]
    return found


def secret_args(settings: Settings) -> Dict[str, Any]:
    """Arguments of the server that must not stand in a command line."""
    return {**settings["secret_args"], **_given(**{"api-key": settings["api_key"]})}


# -- checking


def check(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_preflight."""
    speculative = {name: value for name, value in settings["speculative"].items() if value is not None}
    own = {"speculative_" + name: speculative.get(name) for name in _OWN_OPTIONS}
    return {
        **_instance(settings),
        **{
            name: settings[name]
            for name in (
                *("manager", "python", "launch", "model_path", "host", "port", "gpus", "tp_size", "pp_size"),
                *("dp_size", "extra_args", "environment", "patches", "user", "working_directory", "unmanaged"),
                *("parser", "parser_timeout"),
            )
        },
        **_given(
            served_model_name=settings["served_model_name"],
            expected_count=settings["expected_count"],
            max_running_requests=settings["max_running_requests"],
            mem_fraction_static=settings["mem_fraction_static"],
            **own,
        ),
        **({"container": settings["container"]} if settings["container"] else {}),
        "speculative_algorithm": speculative.get("algorithm") or settings["default_algorithm"],
        "speculative_options": {
            name: speculative[name] for name in sorted(speculative) if name not in ("algorithm", *_OWN_OPTIONS)
        },
        "secret_args": secret_args(settings),
        "measured": settings.get("measured") or {},
    }


def check_kept(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_preflight, for a release that is kept on the host."""
    names = ("manager", "unmanaged", "parser", "parser_timeout")
    return {**_instance(settings), **{name: settings[name] for name in names}, "release": settings["rollback_to"]}


# -- releases


def write(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_release, for the configuration that was checked."""
    checked = _checked(facts)
    return {
        **_instance(settings),
        **{
            name: settings[name]
            for name in ("audit_path", "manager", "user", "working_directory", "stop_timeout", "host", "port")
        },
        **{
            name: checked[name]
            for name in ("command", "container", "files", "gpus", "requested", "effective", "adjusted")
        },
        "patches": _with_texts(checked["patches"], settings["patches"]),
        "state": "present",
        # The preflight adds variables, but blanks secret ones out in its result: those come from where they were given.
        "environment": {**checked["environment"], **settings["environment"]},
        "secret_args": secret_args(settings),
        "sglang_version": checked["version"],
    }


def _with_texts(located: Sequence[Mapping[str, Any]], given: Sequence[Any]) -> List[Dict[str, Any]]:
    """The patches as the preflight located them, with their texts, which its result does not repeat."""
    texts = {patch["target"]: patch.get("content") for patch in given if isinstance(patch, dict) and "target" in patch}
    return [
        {**patch, "content": texts[patch["target"]]} if texts.get(patch["target"]) is not None else dict(patch)
        for patch in located
    ]


def go_back(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_release, for a release that is kept on the host."""
    return {
        **_instance(settings),
        "state": "restored",
        "release": _checked(facts).get("release") or settings["rollback_to"],
        "audit_path": settings["audit_path"],
        "manager": settings["manager"],
    }


def remember(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_release, for the one that is proven now."""
    return {
        **_instance(settings),
        "state": "proven",
        "audit_path": settings["audit_path"],
        "manager": _runs_by(facts),
        "keep": settings["keep"],
        "proof": facts["sglang_deploy_ready"].get("proof") or {},
    }


def _runs_by(facts: Facts) -> str:
    """Who runs the release that is put live: one that comes back keeps its own manager."""
    return str(facts["sglang_deploy_release"]["release"]["manager"])


# -- stopping, starting and waiting


def stop(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_process."""
    return {
        **_instance(settings),
        **_given(manager=settings["manager"], host=settings["host"], port=settings["port"]),
        "state": "stopped",
        "audit_path": settings["audit_path"],
        # The running server has the key of its own release.
        "drain_timeout": settings["drain_timeout"],
        "grace": settings["stop_grace"],
        "kill_timeout": settings["stop_kill_timeout"],
        "unmanaged": settings["unmanaged"],
        "remove_leftovers": settings["stop_remove_leftovers"],
    }


def start(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_process."""
    return {
        **_instance(settings),
        "state": "started",
        "audit_path": settings["audit_path"],
        "manager": _runs_by(facts),
        "enabled": settings["enabled"],
    }


def wait(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of sglang_wait_ready."""
    return {
        **_instance(settings),
        "manager": _runs_by(facts),
        "timeout": settings["ready_timeout"],
        **{
            name: settings[name]
            for name in (
                *("request_timeout", "progress_interval", "min_accept_length"),
                *("soak_requests", "soak_concurrency"),
            )
        },
        **_given(rank_zero=settings["rank_zero"], api_key=settings["api_key"]),
    }


# -- freeing GPUs


def _looked_at(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """What both modules that free GPUs have."""
    return {
        # Exactly the GPUs that the new server will use.
        "gpus": _checked(facts)["gpus"],
        **_given(expected_count=settings["expected_count"]),
        **{
            name: settings["gpu_free_" + name]
            for name in (
                *("nvml_timeout", "reader", "allow_users", "allow_executables", "allow_units", "allow_containers"),
                "ignore_recovery_action",
            )
        },
    }


def reclaim(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of gpu_reclaim: only what belongs to the server, or to the one that it replaces, is ended."""
    neighbours: Sequence[Mapping[str, Any]] = _checked(facts)["neighbours"]

    def protected(what: str, key: str) -> List[Any]:
        return list(settings["gpu_free_protect_" + what]) + [item[key] for item in neighbours if item.get(key)]

    return {
        **_looked_at(settings, facts),
        **{
            name: settings["gpu_free_" + name]
            for name in (
                *("grace", "kill_timeout", "units", "command_pattern", "attached", "protect_users"),
                *("protect_executables", "stop_services", "service_timeout", "stop_mps"),
            )
        },
        "audit_path": settings["audit_path"],
        "users": reclaim_users(settings, facts),
        "containers": settings["reclaim_containers"],
        "protect_units": protected("units", "unit"),
        "protect_containers": protected("containers", "container"),
        "protect_sessions": protected("sessions", "session"),
    }


def reclaim_users(settings: Settings, facts: Facts) -> List[str]:
    """Whose processes are ended on the GPUs: the server's, and those of whoever runs the server that is replaced."""
    if settings["reclaim_users"] or settings["reclaim_containers"]:
        return list(settings["reclaim_users"])
    checked = _checked(facts)
    owners = [(checked.get(name) or {}).get("user") for name in ("running", "unmanaged")]
    return list(dict.fromkeys(str(user) for user in (settings["user"] or "root", *owners) if user))


def prove_free(settings: Settings, facts: Facts) -> Dict[str, Any]:
    """Of gpu_wait_free."""
    return {
        **_looked_at(settings, facts),
        **{
            name: settings["gpu_free_" + name]
            for name in ("timeout", "stable_for", "interval", "baseline", "allow_mib")
        },
        **_given(
            max_used_mib=settings["gpu_free_max_used_mib"],
            max_used_fraction=settings["gpu_free_max_used_fraction"],
        ),
    }
