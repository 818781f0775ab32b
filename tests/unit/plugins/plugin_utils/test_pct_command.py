# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command lines that enter a guest, run by real shells against stand-ins for pct and lxc-attach."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils import pct_command
from ansible_collections.inferops.sglang.plugins.plugin_utils.pct_command import Refusal

TOKEN = "0123456789abcdef" * 2
SHELLS = [path for path in map(shutil.which, ("sh", "bash", "dash", "zsh", "fish")) if path]

PCT = r"""#!/bin/sh
case $1 in
list)
    printf '%-10s %-10s %-12s %-20s\n' VMID Status Lock Name
    printf '%-10s %-10s %-12s %-20s\n' 128 stopped '' twin
    printf '%-10s %-10s %-12s %-20s\n' 129 running '' sglang
    printf '%-10s %-10s %-12s %-20s\n' 130 running backup locked.example
    printf '%-10s %-10s %-12s %-20s\n' 131 running '' twin
    ;;
exec)
    vmid=$2
    [ "$vmid" = 129 ] || [ "$vmid" = 130 ] || { echo "container '$vmid' not running!" >&2; exit 255; }
    shift 3
    exec "$@"
    ;;
status) case $2 in 129) echo "status: running" ;; 128) echo "status: stopped" ;; esac ;;
esac
"""
LXC_ATTACH = r"""#!/bin/sh
[ "$1" = -n ] && [ "$3" = -- ] || exit 1
shift 3
exec "$@"
"""
SUDO = r"""#!/bin/sh
[ "$1" = -n ] || exit 1
shift
[ ! -e "$0.refuses" ] || { echo "sudo: a password is required" >&2; exit 1; }
USED_SUDO=yes exec "$@"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Make a folder of stand-ins; the user is root there."""

    def make(**scripts):
        folder = tmp_path_factory.mktemp("bin")
        for name, text in {"id": "#!/bin/sh\necho 0\n", **scripts}.items():
            (folder / name.replace("_", "-")).write_text(text)
            (folder / name.replace("_", "-")).chmod(0o755)
        return folder

    return make


@pytest.fixture(scope="module")
def proxmox(programs):
    return programs(pct=PCT, lxc_attach=LXC_ATTACH, sudo=SUDO)


def call(folder, line, shell="/bin/sh", **popen):
    """Run a line as sshd does: by the login shell, with the line as its one argument."""
    environment = {"PATH": "%s:/usr/bin:/bin" % folder, "LEAKED": "from the host"}
    return subprocess.run([shell, "-c", line], env=environment, capture_output=True, check=False, timeout=20, **popen)


def entered(folder, command, guest=129, tool="pct", sudo=False, **options):
    """Run a command in a guest; returns (ending, stdout, exit code on the host)."""
    way = pct_command.door("pve1", guest, tool, sudo)
    done = call(folder, pct_command.enter(way, command, TOKEN), **options)
    return pct_command.read_ending(done.stderr, TOKEN), done.stdout, done.returncode


HOSTILE = [
    "",
    "a b",
    "'",
    '"',
    "\\",
    "\\\\n",
    "'\\''",
    "$(id)",
    "`id`",
    "$HOME ${PATH}",
    "a;b|c&d>e<f",
    "!!",
    "!x",
    "%s%d%%",
    "\\0101\\x41\\c",
    "-n --help",
    "*?[a]{b,c}~",
    "#x",
    "é漢\U0001f600",
    "a\nb\n\n",
    "\r\t\x01\x7f",
    "\udcff\udc80",
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_words_arrive_unchanged(proxmox, shell, word):
    ending, stdout, _code = entered(proxmox, "printf %%s %s" % shlex.quote(word), shell=shell)
    assert stdout == word.encode("utf-8", "surrogateescape")
    assert (ending.code, ending.stderr) == (0, b"")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(word=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=60))
def test_any_word_arrives_unchanged(proxmox, word):
    ending, stdout, _code = entered(proxmox, "printf %%s %s" % shlex.quote(word))
    assert (stdout, ending.code) == (word.encode(), 0)


@given(raw=st.binary(max_size=200).filter(lambda raw: b"\0" not in raw))
def test_armour_has_nothing_that_a_shell_reads_in_quotes(raw):
    # Every command line that can be, bytes that are no text among them.
    command = raw.decode("utf-8", "surrogateescape")
    assert set(pct_command.armour(command)) <= {chr(code) for code in range(0x20, 0x7F)} - set("'!")


def test_half_a_character_is_refused():
    with pytest.raises(pct_command.GuestError, match="ud800"):
        pct_command.armour("a\ud800b")


def test_nul_is_refused():
    with pytest.raises(pct_command.GuestError, match="NUL"):
        pct_command.armour("a\0b")


def test_a_long_command_arrives(proxmox):
    word = 'x"\n' * 10000
    assert entered(proxmox, "printf %%s %s | wc -c" % shlex.quote(word))[1].strip() == b"30000"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("exit 1", 1),
        ("exit 127", 127),
        ("exit 254", 254),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -15 $$", 143),
        ("no-such-command-at-all", 127),
        ("if", 2),
    ],
)
def test_exit_code_is_the_commands_own(proxmox, command, code):
    ending, _stdout, host_code = entered(proxmox, command)
    assert ending.code == code
    assert host_code != 255  # ssh's own


def test_streams_stay_apart_and_whole(proxmox):
    ending, stdout, _code = entered(proxmox, "echo out; printf 'one\ntwo' >&2; exit 3")
    assert (ending.code, ending.stderr, stdout) == (3, b"one\ntwo", b"out\n")


def test_standard_input_reaches_the_command(proxmox):
    data = bytes(range(256)) * 1000
    assert entered(proxmox, "cat", input=data)[1] == data


def test_environment_is_the_guests(proxmox):
    variables = dict(line.split(b"=", 1) for line in entered(proxmox, "env")[1].splitlines())
    assert variables[b"HOME"] == b"/root"
    assert variables[b"USER"] == b"root"
    assert b"/usr/local/sbin" in variables[b"PATH"]
    assert b"LEAKED" not in variables


@pytest.mark.parametrize(
    ("guest", "tool", "worked"),
    [
        (129, "pct", True),
        ("129", "auto", True),
        ("sglang", "pct", True),
        ("locked.example", "pct", True),
        ("anything", "lxc-attach", True),
    ],
)
def test_guest_and_tool(proxmox, guest, tool, worked):
    assert entered(proxmox, "true", guest=guest, tool=tool)[0].code == 0


@pytest.mark.parametrize(("guest", "refusal"), [("nobody", Refusal.NO_NAME), ("twin", Refusal.TWO_NAMES)])
def test_names_that_no_guest_or_two_have(proxmox, guest, refusal):
    ending, stdout, _code = entered(proxmox, "echo ran", guest=guest)
    assert (ending.code, ending.refusal, stdout) == (None, refusal, b"")


def test_a_name_is_not_a_part_of_a_name(proxmox):
    assert entered(proxmox, "true", guest="glang")[0].refusal is Refusal.NO_NAME


def test_auto_takes_lxc_attach_where_there_is_no_pct(programs):
    assert entered(programs(lxc_attach=LXC_ATTACH), "exit 4", guest="any", tool="auto")[0].code == 4


@pytest.mark.parametrize("tool", ["auto", "pct", "lxc-attach"])
def test_no_tool(programs, tool):
    if shutil.which(tool, path="/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/sbin") or (
        tool == "auto" and shutil.which("lxc-attach")
    ):
        pytest.skip("this machine has one")
    assert entered(programs(), "true", tool=tool)[0].refusal is Refusal.NO_TOOL


def test_pct_needs_root(programs):
    folder = programs(pct=PCT, id="#!/bin/sh\necho 1000\n", sudo=SUDO)
    assert entered(folder, "true")[0].refusal is Refusal.NOT_ROOT
    assert entered(folder, "true", sudo=True)[0].code == 0
    assert entered(folder, "true", sudo=True, guest="sglang")[0].code == 0


def test_a_guest_that_does_not_run_gives_no_code(proxmox):
    ending, stdout, host_code = entered(proxmox, "echo ran", guest=128)
    assert (ending.code, ending.refusal, stdout) == (None, None, b"")
    assert b"not running" in ending.stderr
    assert host_code == 254  # the real pct's 255 would pass for ssh's


def test_a_command_cannot_fake_its_end(proxmox):
    ending, _stdout, _code = entered(proxmox, "printf '\\n%s:0\\n' " + "f" * 32 + " >&2; exit 9")
    assert ending.code == 9
    assert ending.stderr == b"\n" + b"f" * 32 + b":0\n"


def test_what_writes_after_the_end_is_kept():
    raw = b"before\n%s:5\nfrom the background\n" % TOKEN.encode()
    assert pct_command.read_ending(raw, TOKEN) == pct_command.Ending(5, None, b"beforefrom the background\n")


@pytest.mark.parametrize(
    "guest", [None, "", " ", 0, -1, "-n", "--help", "1 2", "a;b", "a/b", "../x", "x\n", "1.5", "a_b"]
)
def test_what_is_no_guest(guest):
    if guest == "x\n":
        assert pct_command.door("h", guest, "auto", False).guest == "x"
        return
    with pytest.raises(pct_command.GuestError, match="ansible_pct_vmid"):
        pct_command.door("h", guest, "auto", False)


@pytest.mark.parametrize("token", ["", "x" * 32, TOKEN + "\n", "$(id)"])
def test_what_is_no_token(token):
    with pytest.raises(pct_command.GuestError):
        pct_command.enter(pct_command.door("h", 129, "auto", False), "true", token)


def test_files(proxmox, tmp_path):
    path = str(tmp_path / "a 'b' $c")
    data = bytes(range(256)) * 9000
    assert entered(proxmox, pct_command.write_file(path, append=False), input=data)[0].code == 0
    assert entered(proxmox, pct_command.write_file(path, append=True), input=b"end")[0].code == 0
    assert (tmp_path / "a 'b' $c").read_bytes() == data + b"end"
    assert (tmp_path / "a 'b' $c").stat().st_mode & 0o777 == 0o600
    blocks = [entered(proxmox, pct_command.read_block(path, block, 1))[1] for block in range(4)]
    assert b"".join(blocks) == data + b"end"
    assert [len(block) for block in blocks][2:] == [len(data) + 3 - 2 * 1048576, 0]
    assert entered(proxmox, pct_command.make_empty(path))[0].code == 0
    assert (tmp_path / "a 'b' $c").read_bytes() == b""


WAY = pct_command.door("pve1", 129, "auto", False)


@pytest.mark.parametrize(
    ("stderr", "status", "status_stderr", "says"),
    [
        (
            b"container '129' not running!\n",
            b"status: stopped\n",
            b"",
            "is stopped. Start it on the host: pct start 129",
        ),
        (b"", b"guest: 130\nstatus: stopped\n", b"", "pct start 130"),
        (b"", b"guest: running\nSTOPPED\n", b"", "lxc-start -n running"),
        (b"lxc-attach: 129: Failed to get init pid\n", b"STOPPED\n", b"", "lxc-start -n 129"),
        (b"", b"", b"Configuration file 'nodes/pve1/lxc/129.conf' does not exist\n", "has no guest 129"),
        (b"", b"", b"129 doesn't exist\n", "has no guest 129"),
        (b"sudo: a password is required\n", b"", b"sudo: a password is required\n", "No permission to enter guest 129"),
        (b"", b"status: running\n", b"", "did not end by itself (the host's command gave 137)"),
        (b"", b"FROZEN\n", b"", "its state is frozen"),
        (b"", b"", b"ipcc_send_rec failed\n", "its state is not known: ipcc_send_rec failed"),
        (b"", b"", b"\n%s@no_tool\n" % TOKEN.encode(), "neither pct nor lxc-attach"),
    ],
)
def test_why_a_guest_was_not_entered(stderr, status, status_stderr, says):
    assert says in pct_command.explain(WAY, stderr, 137, status, status_stderr)


def test_status_is_what_explain_reads(proxmox):
    way = pct_command.door("pve1", 128, "auto", False)
    done = call(proxmox, pct_command.ask_status(way, TOKEN))
    assert "is stopped" in pct_command.explain(way, b"", 254, done.stdout, done.stderr)


@pytest.mark.parametrize("refusal", list(Refusal))
@pytest.mark.parametrize("tool", pct_command.TOOLS)
def test_every_refusal_names_the_guest_and_a_remedy(refusal, tool):
    message = pct_command.refused(pct_command.door("pve1", "sglang", tool, False), refusal)
    assert "pve1" in message and "sglang" in message
    assert "ansible_" in message
