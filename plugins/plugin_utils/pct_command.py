# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command lines that enter an LXC guest through its host, and what their end means.

Nothing here runs anything.  Two shells stand between the controller and a command in a guest: the login
shell of the host, and the guest's C(/bin/sh).  Both get scripts that never change; what differs from call
to call is passed as their arguments, and the command itself in an alphabet that no shell reads anything
into (see `armour`).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import Enum

AUTO = "auto"
PCT = "pct"
LXC_ATTACH = "lxc-attach"
TOOLS = (AUTO, PCT, LXC_ATTACH)

# A VMID as Proxmox gives it, or the name of a guest.  Neither can be taken for an option of a command.
_VMID = re.compile(r"[1-9][0-9]{0,8}")
_NAME = re.compile(r"(?=[0-9.-]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_TOKEN = re.compile(r"[0-9a-f]{32}")
# What stays as it is in an armoured command: printable, and special to no shell inside single quotes.
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\!")

_ARMOUR = {byte: chr(byte) if byte in _PLAIN else "\\0%03o" % byte for byte in range(256)}
_ARMOUR[0x0A] = "\\n"  # there are many of these in a script, and a command line is short

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Runs in the guest: $1 is the armoured command, $2 the token.  The last line on stderr is the proof that the
# command itself ended, and how: every other way to end is the host's or the connection's.
_IN_GUEST = """\
HOME=~root
export HOME USER=root LOGNAME=root SHELL=/bin/sh
cd "$HOME" 2>/dev/null || cd /
text=$(printf %b. "$1")
/bin/sh -c "${text%.}"
code=$?
printf "\\n%s:%s\\n" "$2" "$code" >&2
exit "$code"
"""

# Runs on the host, before what is to be done there: finds the tool, the right to use it, and the guest.
# The search path of a plain user has no sbin.  $1 tool, $2 sudo or nothing, $3 guest, $4 token.
_ON_HOST = """\
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
tool=$1 sudo=$2 guest=$3 token=$4
refuse() { printf "\\n%s@%s\\n" "$token" "$1" >&2; exit 1; }
as_root() { if [ -n "$sudo" ]; then sudo -n "$@"; else "$@"; fi; }
if [ "$tool" = auto ]; then
    tool=lxc-attach
    if command -v pct >/dev/null 2>&1; then tool=pct; fi
fi
command -v "$tool" >/dev/null 2>&1 || refuse no_tool
if [ "$tool" = pct ]; then
    if [ -z "$sudo" ] && [ "$(id -u)" -ne 0 ]; then refuse not_root; fi
    case $guest in
    *[a-zA-Z]*)
        found=$(as_root pct list | while read -r id state rest; do
            if [ "${rest##* }" = "$guest" ]; then echo "$id"; fi
        done)
        case $found in
        "") refuse no_name ;;
        *[0-9][[:space:]]*[0-9]*) refuse two_names ;;
        esac
        guest=$found ;;
    esac
fi
"""

# $5 is what runs in the guest, $6 the armoured command.  ssh takes 255 for an error of its own.
_ENTER = (
    """\
inside=$5 text=$6
if [ "$tool" = pct ]; then set -- pct exec "$guest" --; else set -- lxc-attach -n "$guest" --; fi
as_root "$@" /usr/bin/env -i PATH=%s /bin/sh -c "$inside" sh "$text" "$token"
code=$?
if [ "$code" -eq 255 ]; then code=254; fi
exit "$code"
"""
    % _SEARCH_PATH
)

# The name is told by number: that is what pct start wants.
_STATUS = """\
echo "guest: $guest"
if [ "$tool" = pct ]; then as_root pct status "$guest"; else as_root lxc-info -n "$guest" -s -H; fi
code=$?
if [ "$code" -eq 255 ]; then code=254; fi
exit "$code"
"""


class GuestError(ValueError):
    """An option that cannot be used, with the remedy."""


class Refusal(Enum):
    """Why the host's side of a call went no further than the host."""

    NO_TOOL = "no_tool"
    NOT_ROOT = "not_root"
    NO_NAME = "no_name"
    TWO_NAMES = "two_names"


@dataclass(frozen=True)
class Door:
    """How a guest is entered.

    host: how messages call its host.  guest: VMID or name.  tool: one of TOOLS.  sudo: whether the tool is
    run through sudo on the host.
    """

    host: str
    guest: str
    tool: str = AUTO
    sudo: bool = False

    @property
    def label(self) -> str:
        """The guest and its host, as messages call them."""
        return "guest %s of the Proxmox host %s" % (self.guest, self.host)


@dataclass(frozen=True)
class Ending:
    """How a call ended.

    code: exit code of the command in the guest, None when it is not known to have ended.  refusal: why the
    guest was not even tried.  stderr: what the command wrote, without our own line.
    """

    code: int | None
    refusal: Refusal | None
    stderr: bytes


def door(host: str, guest: object, tool: str, sudo: bool) -> Door:
    """Check the options and put them together.

    Raises GuestError when guest is neither a VMID nor a name.
    """
    text = str(guest).strip() if guest is not None else ""
    if not text:
        raise GuestError(
            "ansible_pct_vmid is not set: name the guest, by its VMID (129) or its name, that pct list shows "
            "on the Proxmox host %s" % host
        )
    if not (_VMID.fullmatch(text) or _NAME.fullmatch(text)):
        raise GuestError(
            "ansible_pct_vmid=%r is neither a VMID (129) nor the name of a guest (letters, digits, dots and dashes, "
            "at least one letter); pct list on the Proxmox host %s shows both" % (text, host)
        )
    return Door(host, text, tool, sudo)


def enter(way: Door, command: str, token: str) -> str:
    """The command line for the host's login shell that runs a shell command in the guest.

    token: 32 hexadecimal digits that nobody can guess, to be given to `read_ending` afterwards.
    """
    return _host_line(way, token, _ON_HOST + _ENTER, _IN_GUEST, armour(command))


def ask_status(way: Door, token: str) -> str:
    """The command line that asks the host what the guest is doing; `explain` reads the answer."""
    return _host_line(way, token, _ON_HOST + _STATUS)


def _host_line(way: Door, token: str, script: str, *arguments: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise GuestError("the token must be 32 hexadecimal digits")
    words = ("/bin/sh", "-c", script, "sh", way.tool, "sudo" if way.sudo else "", way.guest, token)
    return " ".join(shlex.quote(word) for word in words + arguments)


def armour(command: str) -> str:
    """A command as printable ASCII without quotes, backslashes of its own and line ends.

    The guest's printf %b turns it back.  What is not ASCII would not survive pct, which decodes its arguments
    by the locale of the host.  Raises GuestError for a command with what no argument can hold: a NUL, half a
    character.
    """
    try:
        raw = command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise GuestError(
            "the command contains %a, which is no character" % error.object[error.start : error.end]
        ) from None
    if b"\0" in raw:
        raise GuestError("the command contains a NUL character, which no command line can hold")
    return "".join(_ARMOUR[byte] for byte in raw)


def read_ending(stderr: bytes, token: str) -> Ending:
    """Find our own line in what came back on stderr.

    It need not be the last one: what the command left running may write after it.
    """
    mark = re.search(rb"\n%s(?::([0-9]{1,3})|@([a-z_]+))\r?\n" % token.encode("ascii"), stderr)
    if mark is None:
        return Ending(None, None, stderr)
    rest = stderr[: mark.start()] + stderr[mark.end() :]
    if mark.group(1) is not None:
        return Ending(int(mark.group(1)), None, rest)
    return Ending(None, Refusal(mark.group(2).decode("ascii")), rest)


def write_file(path: str, append: bool) -> str:
    """The command in the guest that writes its standard input to a file: only root can read a new one."""
    return "umask 077 && cat %s %s" % (">>" if append else ">", shlex.quote(path))


def make_empty(path: str) -> str:
    """The command in the guest that makes an empty file, or empties one."""
    return "umask 077 && : > %s" % shlex.quote(path)


def read_block(path: str, block: int, mebibytes: int) -> str:
    """The command in the guest that writes one block of a file, of so many MiB, to its standard output."""
    return "exec dd if=%s bs=1048576 skip=%d count=%d" % (shlex.quote(path), block * mebibytes, mebibytes)


def refused(way: Door, refusal: Refusal) -> str:
    """The message for a call that went no further than the host."""
    if refusal is Refusal.NO_TOOL:
        tools = "pct nor lxc-attach" if way.tool == AUTO else way.tool
        return (
            "%s cannot be entered: the host has %s %s. Is ansible_host the Proxmox host, not the guest? "
            "ansible_pct_command chooses between pct and lxc-attach"
            % (_first_upper(way.label), "neither" if way.tool == AUTO else "no", tools)
        )
    if refusal is Refusal.NOT_ROOT:
        return _no_permission(way, "pct works for root only")
    if refusal is Refusal.NO_NAME:
        return (
            "The Proxmox host %s has no guest named %s (ansible_pct_vmid), or pct list failed there; names are those "
            "in the last column of pct list. A guest of another node is entered through that node"
            % (way.host, way.guest)
        )
    return (
        "More than one guest of the Proxmox host %s is named %s (ansible_pct_vmid): give the VMID, "
        "the first column of pct list" % (way.host, way.guest)
    )


def explain(way: Door, stderr: bytes, code: int, status: bytes, status_stderr: bytes) -> str:
    """Why a command in the guest is not known to have ended.

    stderr, code: what the call left.  status, status_stderr: what the host answered to `ask_status`.
    """
    said = _last_lines(stderr)
    number, answer = _split_status(way, status)
    denial = next((line for line in _lines(stderr) + _lines(status_stderr) if line.startswith("sudo:")), "")
    ending = read_ending_refusal(status_stderr)
    if ending is not None:
        return refused(way, ending)
    if denial:
        return _no_permission(way, denial)
    if re.search(r"does not exist|doesn't exist", _last_lines(status_stderr)):
        return (
            "The Proxmox host %s has no guest %s (ansible_pct_vmid): pct list shows the guests of this node. "
            "A guest of another node of the cluster is entered through that node (ansible_host)%s"
            % (way.host, way.guest, _quoted(_last_lines(status_stderr)))
        )
    if "stopped" in answer:
        start = "pct start %s" % number if answer.startswith("status:") else "lxc-start -n %s" % number
        return "%s is stopped. Start it on the host: %s%s" % (_first_upper(way.label), start, _quoted(said))
    if runs(status):
        return (
            "The command in %s was started but did not end by itself (the host's command gave %d): it or the shell "
            "around it was killed, the guest was just restarted, or it has no /bin/sh%s"
            % (way.label, code, _quoted(said))
        )
    state = answer.replace("status:", "").strip() or "not known: %s" % (_last_lines(status_stderr) or "no answer")
    return "%s cannot be entered; its state is %s%s" % (_first_upper(way.label), state, _quoted(said))


def runs(status: bytes) -> bool:
    """Whether the host's answer to `ask_status` is that the guest runs."""
    return any(line.split()[-1].lower() == "running" for line in _lines(status) if not line.startswith("guest:"))


def read_ending_refusal(stderr: bytes) -> Refusal | None:
    """The refusal in an answer to `ask_status`, whatever its token was."""
    mark = re.search(rb"\n[0-9a-f]{32}@([a-z_]+)\r?\n", stderr)
    return Refusal(mark.group(1).decode("ascii")) if mark is not None else None


def _split_status(way: Door, status: bytes) -> tuple[str, str]:
    """The guest as the host's tools call it, and what they say about it."""
    lines = _lines(status)
    names = [line[len("guest:") :].strip() for line in lines if line.startswith("guest:")]
    answer = " ".join(line for line in lines if not line.startswith("guest:"))
    return (names[0] if names else way.guest), answer.lower()


def _no_permission(way: Door, why: str) -> str:
    remedy = (
        "let that user run pct (or what ansible_pct_command names) through sudo without a password"
        if way.sudo
        else "log in to the host as root (ansible_user), or set ansible_pct_sudo to true"
    )
    return "No permission to enter %s: %s; %s" % (way.label, why, remedy)


def _lines(text: bytes) -> list[str]:
    return [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]


def _last_lines(text: bytes, count: int = 3) -> str:
    return " / ".join(_lines(text)[-count:])


def _quoted(said: str) -> str:
    return ". It said: %s" % said if said else ""


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
