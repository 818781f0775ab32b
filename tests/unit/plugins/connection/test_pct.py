# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection plugin, over ansible-core's own ssh and local plugins, with stand-ins for ssh and pct."""

from __future__ import annotations

import hashlib
import os
import stat

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.playbook.play_context import PlayContext
from ansible.plugins.connection import ssh
from ansible.plugins.loader import become_loader, connection_loader

from ansible_collections.inferops.sglang.plugins.connection import pct
from ansible_collections.inferops.sglang.plugins.doc_fragments.ssh_client import ModuleDocFragment

NAME = "inferops.sglang.pct"


class Loader:
    """ansible-core's own loader, which knows its own plugins by their short names when no collection is set up."""

    @staticmethod
    def get(name, *args, **kwargs):
        return connection_loader.get(name.rpartition(".")[2], *args, **kwargs)


# Takes what ssh takes, and runs the last word, as sshd does.
SSH = """#!/bin/sh
echo "$@" >>"$0.calls"
[ ! -e "$0.down" ] || { echo "ssh: connect to host pve1 port 22: No route to host" >&2; exit 255; }
for word; do :; done
PATH=%(folder)s:$PATH exec /bin/sh -c "$word"
"""
PCT = """#!/bin/sh
[ "$2" != 130 ] || { echo "Configuration file 'nodes/pve1/lxc/130.conf' does not exist" >&2; exit 255; }
if [ -e "$0.stopped" ]; then
    [ "$1" != status ] || { echo "status: stopped"; exit 0; }
    echo "container '$2' not running!" >&2
    exit 255
fi
[ "$1" != status ] || { echo "status: running"; exit 0; }
shift 3
"$@"
code=$?
[ ! -e "$0.stopped" ] || kill -9 $$
exit "$code"
"""


@pytest.fixture
def folder(tmp_path):
    """Stand-ins for ssh and pct, on a host where the user is root."""
    scripts = {"ssh": SSH % {"folder": tmp_path}, "pct": PCT, "id": "#!/bin/sh\necho 0\n"}
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def connect(folder, monkeypatch):
    """Make a connection as a task does, from the variables of its host."""
    options = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    options.update(yaml.safe_load(pct.DOCUMENTATION)["options"])
    constants.config.initialize_plugin_configuration_definitions("connection", NAME, options)
    monkeypatch.setattr(pct, "connection_loader", Loader)
    monkeypatch.setenv("PATH", "%s:%s" % (folder, os.environ["PATH"]))
    monkeypatch.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", str(folder / "cp"))

    def make(**variables):
        given = {
            "inventory_hostname": "guest",
            "ansible_host": "pve1",
            "ansible_pct_vmid": 129,
            "ansible_ssh_executable": str(folder / "ssh"),
            **variables,
        }
        known = constants.config.get_plugin_vars("connection", NAME)
        connection = pct.Connection(PlayContext())
        connection._load_name = NAME
        connection.set_options(var_options={name: given[name] for name in known if name in given})
        return connection

    return make


BOTH = pytest.mark.parametrize("local", [False, True], ids=["ssh", "local"])


@BOTH
def test_commands_run_in_the_guest(connect, local):
    connection = connect(ansible_pct_local=local)
    assert connection.exec_command("echo \"$HOME\" 'it''s'; echo e >&2; exit 255") == (255, b"/root its\n", b"e\n")


@BOTH
def test_standard_input(connect, local):
    data = bytes(range(256)) * 5000
    code, stdout, stderr = connect(ansible_pct_local=local).exec_command("sha256sum", in_data=data)
    assert (code, stdout.split()[0].decode(), stderr) == (0, hashlib.sha256(data).hexdigest(), b"")


def test_ssh_goes_to_the_host_by_its_own_options(connect, folder):
    connection = connect(ansible_user="admin", ansible_port=2222, ansible_ssh_common_args="-o ProxyJump=bastion")
    connection.exec_command("true")
    call = (folder / "ssh.calls").read_text()
    assert " pve1 " in call
    assert "Port=2222" in call
    assert 'User="admin"' in call
    assert "ProxyJump=bastion" in call
    assert "-tt" not in call


def test_the_user_in_the_guest_is_root_whoever_logs_in(connect):
    connection = connect(ansible_user="admin")
    assert connection.default_user == "root"
    assert connection.get_option("host_user") == "admin"
    with pytest.raises(KeyError):  # what makes Ansible take default_user
        connection.get_option("remote_user")


def test_modules_are_piped_unless_told_otherwise(connect):
    assert connect().has_pipelining
    assert connect().get_option("pipelining") is True
    assert connect(ansible_pipelining=False).get_option("pipelining") is False


@BOTH
@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 100], ids=["empty", "one", "more"])
def test_files_both_ways(connect, tmp_path, local, data):
    connection = connect(ansible_pct_local=local)
    source, inside, back = tmp_path / "source", tmp_path / "in 'side' $x", tmp_path / "back"
    source.write_bytes(data)
    connection.put_file(str(source), str(inside))
    assert inside.read_bytes() == data
    assert stat.S_IMODE(inside.stat().st_mode) == 0o600
    connection.fetch_file(str(inside), str(back))
    assert back.read_bytes() == data


@pytest.mark.parametrize("more", [0, 1], ids=["whole blocks", "a rest"])
def test_files_of_several_blocks(connect, tmp_path, monkeypatch, more):
    monkeypatch.setattr(pct, "_BLOCK_MIB", 1)
    monkeypatch.setattr(pct, "_BLOCK", 1 << 20)
    data = os.urandom((2 << 20) + more)
    (tmp_path / "source").write_bytes(data)
    (tmp_path / "inside").write_bytes(b"longer than nothing")
    connection = connect(ansible_pct_local=True)
    connection.put_file(str(tmp_path / "source"), str(tmp_path / "inside"))
    connection.fetch_file(str(tmp_path / "inside"), str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data


def test_a_file_that_cannot_be_copied(connect, tmp_path):
    connection = connect()
    with pytest.raises(AnsibleFileNotFound, match="no file /nowhere on the controller"):
        connection.put_file("/nowhere", "/tmp/x")
    (tmp_path / "source").write_text("x")
    with pytest.raises(AnsibleError, match=r"could not be copied to /nowhere/x through guest 129 of .* pve1"):
        connection.put_file(str(tmp_path / "source"), "/nowhere/x")
    with pytest.raises(AnsibleError, match="could not be copied"):
        connection.fetch_file("/nowhere/x", str(tmp_path / "back"))


def test_a_become_plugin_is_answered_from_inside(connect, folder):
    """The prompt comes out of the guest, and the password goes into it."""
    connection = connect()
    become = become_loader.get("sudo")
    become.set_options(direct={"become_pass": "secret", "become_user": "alice"})
    connection.set_become_plugin(become)
    (folder / "asks").write_text(
        '#!/bin/sh\nprintf "%s" "$1" >&2\nread -r answer\n[ "$answer" = secret ] && echo "$2" && echo granted\n'
    )
    become.build_become_command("true", connection._shell)
    command = "sh '%s/asks' '%s' '%s'" % (folder, become.prompt, become.success)
    code, stdout, _stderr = connection.exec_command(command)
    assert (code, stdout.strip()) == (0, b"granted")


def failure(connection, error=AnsibleConnectionFailure):
    with pytest.raises(error) as caught:
        connection.exec_command("echo ran >>/nowhere/at/all")
    return str(caught.value)


def test_host_that_cannot_be_reached(connect, folder):
    (folder / "ssh.down").touch()
    message = failure(connect())
    assert "Proxmox host pve1 cannot be reached" in message
    assert "No route to host" in message


def test_guest_that_is_stopped(connect, folder):
    (folder / "pct.stopped").touch()
    assert "Guest 129 of the Proxmox host pve1 is stopped. Start it on the host: pct start 129" in failure(connect())


def test_data_for_a_guest_that_is_stopped(connect, folder):
    """Data that nobody takes must not be told as a broken connection to the host."""
    (folder / "pct.stopped").touch()
    with pytest.raises(AnsibleConnectionFailure, match=r"Guest 129 .* is stopped"):
        connect().exec_command("cat >/dev/null", in_data=b"x" * 5000000)


def test_guest_that_does_not_exist(connect):
    assert "has no guest 130" in failure(connect(ansible_pct_vmid=130))


def test_guest_that_stops_under_a_command(connect, folder):
    with pytest.raises(AnsibleConnectionFailure, match="is stopped"):
        connect(ansible_pct_local=True).exec_command("touch '%s/pct.stopped'; kill -9 $PPID" % folder)


def test_command_whose_end_nobody_saw(connect):
    with pytest.raises(AnsibleConnectionFailure, match="did not end by itself"):
        connect(ansible_pct_local=True).exec_command("kill -9 $PPID")


def test_user_who_may_not_enter(connect, folder):
    (folder / "id").write_text("#!/bin/sh\necho 1000\n")
    assert "No permission to enter guest 129" in failure(connect(ansible_user="admin"))


@pytest.mark.parametrize("guest", ["", "-n x", "a b"])
def test_no_guest_named(connect, guest):
    assert "ansible_pct_vmid" in failure(connect(ansible_pct_vmid=guest), AnsibleError)


def test_unknown_tool_is_an_option_error(connect):
    with pytest.raises(AnsibleError, match="guest_command"):
        connect(ansible_pct_command="chroot").exec_command("true")


def test_options_of_ssh_are_all_there():
    ours = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    theirs = yaml.safe_load(ssh.DOCUMENTATION)["options"]
    missing = set(theirs) - set(ours) - {"host", "pipelining", "use_tty", "ssh_transfer_method", "remote_user"}
    assert {name for name in missing if not name.startswith(("sftp_", "scp_"))} == set()
    assert ours["host_user"]["vars"] == [{"name": "ansible_user"}, {"name": "ansible_ssh_user"}]
    assert "version_added" not in ModuleDocFragment.DOCUMENTATION
