# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import clear_words, end_words
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.systemd_unit import (
    HEADER,
    is_ours,
    quote_assignment,
    quote_command,
    quote_word,
    render,
    render_environment,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

PATHS = InstancePaths("main")
SETTINGS = ContainerSettings("docker", "/usr/bin/docker", "i")
ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "s": " ",
    "\\": "\\",
    '"': '"',
    "'": "'",
}


def unquote(line):
    """Split a command line as systemd does: quotes, C escapes, then specifiers and variables."""
    words, word, quote, i = [], None, "", 0
    while i < len(line):
        char = line[i]
        if char == "\\":
            following = line[i + 1]
            if following == "x":
                word, i = (word or "") + chr(int(line[i + 2 : i + 4], 16)), i + 4
            else:
                word, i = (word or "") + ESCAPES[following], i + 2
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                word += char
        elif char in "\"'" and word is None:
            quote, word = char, ""
        elif char in " \t":
            words, word = words + ([] if word is None else [word]), None
        else:
            assert char not in "\"';" or word, line
            word = (word or "") + char
        i += 1
    assert not quote
    words += [] if word is None else [word]
    return [undouble(undouble(word, "%"), "$") for word in words]


def undouble(word, char):
    """Halve a doubled character; a single one would be a specifier or a variable."""
    parts = word.split(char * 2)
    assert not any(char in part for part in parts), word
    return char.join(parts)


def release(**changes):
    fields = {
        "id": "x",
        "created": "",
        "instance": "main",
        "manager": "systemd",
        "command": ["/usr/bin/python3", "-m", "x"],
    }
    return Release(**dict(fields, **changes))


WORDS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"))


@given(st.lists(WORDS))
def test_any_command_line_survives_quoting(words):
    command = ["/usr/bin/python3", *words]
    line = quote_command(command)
    assert "\n" not in line
    assert unquote(line) == command


def lines_of(text):
    """The settings of a unit as systemd's reader takes them apart: see read_line() and config_parse() there."""
    lines, pending = [], ""
    for line in re.split("[\n\r\0]", text):
        line = pending + line.lstrip(" \t")
        pending = ""
        if not pending and line[:1] in ("#", ";", ""):
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending = line[:-1] + " "
        else:
            lines.append(line)
    return [line.partition("=")[::2] for line in lines + ([pending] if pending else [])]


PATH_TEXT = st.text(st.sampled_from("/a \\%$~-\r\n\t\0\x0b;#='\"ü\u2028"), max_size=8)


@given(PATH_TEXT, PATH_TEXT, st.lists(st.text(st.sampled_from("a\r\n\\ %\"'"), max_size=6), max_size=3))
def test_no_folder_user_or_word_brings_a_setting_into_a_unit(folder, user, words):
    plain = lines_of(render(release(working_directory="/srv", user="llm"), PATHS))
    try:
        text = render(
            release(working_directory="/srv/" + folder, user=user or "llm", command=["/usr/bin/python3", *words]), PATHS
        )
    except ValueError:
        return
    found = lines_of(text)
    assert [name for name, _value in found] == [name for name, _value in plain]
    values = dict(found)
    assert values["WorkingDirectory"].replace("%%", "%") == "/srv/" + folder
    assert values["User"].replace("%%", "%") == (user or "llm")
    assert unquote(values["ExecStart"]) == ["/usr/bin/python3", *words]


@pytest.mark.parametrize(
    "folder", ["/tmp/x\rUser=root\rExecStartPre=/tmp/evil", "/tmp/x\\", "/tmp/x ", "/tmp/x\0", "~x"]
)
def test_a_folder_that_would_bring_settings_with_it_is_refused(folder):
    with pytest.raises(ValueError, match="a path in a unit cannot"):
        render(release(working_directory=folder), PATHS)


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("--port", "--port"),
        ("", '""'),
        ("a b", '"a b"'),
        ("50%", '"50%%"'),
        ("${HOME}", '"$${HOME}"'),
        ('{"a": 1}', '"{\\"a\\": 1}"'),
        ("a\nb", '"a\\x0ab"'),
        (";", '";"'),
        ("größe", '"größe"'),
        ("it's", '"it\'s"'),
    ],
)
def test_quoting(word, quoted):
    assert quote_word(word) == quoted


@pytest.mark.parametrize("program", ["python3", "./python3", "-/usr/bin/python3", "/opt/$x/python"])
def test_refuses_a_program_that_systemd_would_not_find(program):
    with pytest.raises(ValueError, match="absolute path"):
        quote_command([program])


def settings(text):
    return [line for line in text.splitlines() if "=" in line and not line.startswith("#")]


def test_the_unit():
    text = render(release(sglang_version="0.5.17", stop_timeout=90.5), PATHS)
    assert text.startswith(HEADER + "\n[Unit]\n") and is_ours(text)
    assert settings(text) == [
        "Description=SGLang server main",
        "Wants=network-online.target",
        "After=network-online.target",
        "Type=exec",
        "ExecStart=/usr/bin/python3 -m x",
        "EnvironmentFile=/etc/sglang/main/environment",
        'Environment="INFEROPS_SGLANG_INSTANCE=main"',
        'Environment="INFEROPS_SGLANG_STATE_DIR=/var/lib/sglang"',
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        "TimeoutStopSec=90500ms",
        "TimeoutStartSec=infinity",
        "SuccessExitStatus=137 SIGKILL",
        "SendSIGKILL=yes",
        "Restart=no",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "WantedBy=multi-user.target",
    ]


@pytest.mark.parametrize(
    ("version", "expected"), [("0.5.18", True), ("", True), ("dev", True), ("0.5.19", False), ("0.6", False)]
)
def test_death_by_sigkill_is_a_regular_end_only_of_versions_that_do_so(version, expected):
    assert ("SuccessExitStatus=137 SIGKILL" in settings(render(release(sglang_version=version), PATHS))) is expected


def test_user_and_folder():
    lines = settings(render(release(user="llm", working_directory="/srv/100% llm"), PATHS))
    assert "User=llm" in lines and "WorkingDirectory=/srv/100%% llm" in lines


def test_refuses_a_folder_that_would_add_a_setting():
    with pytest.raises(ValueError, match="control characters"):
        render(release(working_directory="/srv\nUser=root"), PATHS)


@given(WORDS)
def test_any_value_of_a_variable_survives_quoting(value):
    line = quote_assignment("NAME", value)
    assert "\n" not in line
    # The same as a word, but for the dollar sign, which means nothing here.
    assert unquote(line.replace("$", "$$")) == ["NAME=" + value]


def contained(engine, **changes):
    container = ContainerSettings(engine, "/usr/bin/" + engine, "i", options=("--annotation", "50% $x"))
    return settings(render(release(container=container.to_dict(), **changes), PATHS))


def command_of(lines, name):
    """The words of one of the unit's commands, without the '-' before a command that may fail."""
    (value,) = [line.partition("=")[2] for line in lines if line.startswith(name + "=")]
    return unquote(value[1:] if value.startswith("-") else value)


def test_the_unit_around_docker():
    lines = contained("docker", sglang_version="0.5.17", stop_timeout=90.5, user="1000", working_directory="/srv/x")
    assert command_of(lines, "ExecStartPre") == clear_words(SETTINGS, PATHS)
    assert command_of(lines, "ExecStart")[:3] == ["/usr/bin/docker", "run", "--rm"]
    assert "50% $x" in command_of(lines, "ExecStart")
    assert command_of(lines, "ExecStop") == ["/usr/bin/docker", "stop", "-t", "91", "sglang-main"]
    assert command_of(lines, "ExecStopPost") == end_words(SETTINGS, PATHS, 90.5)
    assert [line for line in lines if not line.startswith("Exec")] == [
        "Description=SGLang server main",
        "Wants=network-online.target",
        "After=network-online.target",
        # It stops before the daemon does, with the time that it needs.
        "Requires=docker.service",
        "After=docker.service",
        "Type=exec",
        "EnvironmentFile=/etc/sglang/main/environment",
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        "TimeoutStopSec=120500ms",
        "TimeoutStartSec=90000ms",
        "SuccessExitStatus=137 143",
        "SendSIGKILL=yes",
        "Restart=no",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "WantedBy=multi-user.target",
    ]


def test_nothing_but_the_server_s_own_end_counts_as_the_unit_s():
    lines = contained("docker")
    assert [line.partition("=")[0] for line in lines if re.match("Exec[A-Za-z]+=-", line)] == [
        "ExecStartPre",
        "ExecStop",
        "ExecStopPost",
    ]


def test_the_unit_around_podman():
    lines = contained("podman", sglang_version="0.5.19")
    assert not any("docker" in line for line in lines)
    stop = "ExecStop=-/usr/bin/podman stop -t 300 sglang-main"
    assert {"Delegate=yes", stop, "SuccessExitStatus=127 143"} < set(lines)


def test_the_client_runs_as_root_and_the_server_as_whom_it_shall():
    lines = contained("docker", user="1000", working_directory="/srv/x")
    assert not any(line.startswith(("User=", "WorkingDirectory=")) for line in lines)
    assert any("--user 1000 --workdir /srv/x" in line for line in lines)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"engine": "docker", "engine_path": "/usr/bin/docker", "image": ""}, "is not the name of an image"),
        ({"engine": "docker", "engine_path": "", "image": "i"}, "must be an absolute path"),
    ],
)
def test_refuses_a_container_that_cannot_be(container, words):
    with pytest.raises(ValueError, match=words):
        render(release(container=container), PATHS)


@pytest.mark.parametrize("text", ["", "[Unit]\n", "\n" + HEADER + "\n"])
def test_other_units_are_not_ours(text):
    assert not is_ours(text)


def read_environment(text):
    """Read NAME="value" lines as systemd does."""
    pairs = re.findall(r'^([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"$', text, re.MULTILINE | re.DOTALL)
    return {name: re.sub(r'\\(["\\`$])', r"\1", value) for name, value in pairs}


@given(
    st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), WORDS.map(lambda s: s.replace("\r", "")))
)
def test_any_environment_survives_its_file(environment):
    text = render_environment(environment)
    assert is_ours(text)
    assert read_environment(text) == environment
