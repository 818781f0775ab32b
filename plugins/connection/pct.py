# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Connection to an LXC guest through its host."""

from __future__ import annotations

DOCUMENTATION = r"""
name: pct
short_description: Run tasks inside an LXC guest of a Proxmox host
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Logs in to a Proxmox host over ssh and runs everything inside one of its LXC guests with C(pct exec). The guest
    is a host of the inventory like any other, and needs neither an ssh server nor an address.
  - On a host without C(pct), C(lxc-attach) does the same for any LXC container.
  - Commands, modules and files go through standard input and output. No file is written on the Proxmox host.
  - Tasks run as root of the guest; C(become) works inside the guest, from root to another user.
  - A guest that cannot be entered is unreachable, and the message says why, be it that the Proxmox host cannot be
    reached, that it has no such guest, that the guest is stopped, or that the user may not enter it.
options:
  vmid:
    description:
      - The guest, by its VMID or its name, as C(pct list) shows them. A name costs one C(pct list) a command.
      - Needed; it has no default.
    type: string
    default: ""
    vars:
      - name: ansible_pct_vmid
  host:
    description: Name or address of the Proxmox host.
    type: string
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
      - name: ansible_ssh_host
  guest_command:
    description: What enters the guest on its host.
    type: string
    default: auto
    choices:
      auto: C(pct) where the host has it, else C(lxc-attach).
      pct: C(pct exec). It loads much of Proxmox each time, which takes some tenths of a second.
      lxc-attach: C(lxc-attach), which is what C(pct exec) runs in the end; Proxmox names its containers by VMID.
    vars:
      - name: ansible_pct_command
    env:
      - name: ANSIBLE_PCT_COMMAND
    ini:
      - section: pct_connection
        key: command
  host_sudo:
    description:
      - Whether the command that enters the guest is run through C(sudo) on the Proxmox host, for a O(host_user) other
        than root. C(sudo) must not ask for a password there.
    type: boolean
    default: false
    vars:
      - name: ansible_pct_sudo
    env:
      - name: ANSIBLE_PCT_SUDO
    ini:
      - section: pct_connection
        key: sudo
  host_is_local:
    description: Whether the controller is the Proxmox host, so that no ssh is needed.
    type: boolean
    default: false
    vars:
      - name: ansible_pct_local
    env:
      - name: ANSIBLE_PCT_LOCAL
    ini:
      - section: pct_connection
        key: local
  pipelining:
    description:
      - Modules are sent through standard input instead of being written to a file in the guest first. Two trips to
        the guest for each module are saved that way.
    type: boolean
    default: true
    vars:
      - name: ansible_pipelining
      - name: ansible_ssh_pipelining
    env:
      - name: ANSIBLE_PIPELINING
      - name: ANSIBLE_SSH_PIPELINING
    ini:
      - section: defaults
        key: pipelining
      - section: connection
        key: pipelining
      - section: ssh_connection
        key: pipelining
notes:
  - All other options are those of the ssh connection plugin of ansible-core, by the same variables, and are about the
    way to the Proxmox host. Its options about sftp, scp and terminals do not exist here.
  - The login shell of O(host_user) must be a POSIX shell.
  - The environment of the host does not reach into the guest.
extends_documentation_fragment:
  - inferops.sglang.ssh_client
"""

import os
import secrets
from typing import Any, NoReturn

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase, ensure_connect
from ansible.plugins.loader import connection_loader
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.plugin_utils import pct_command

display = Display()

# Files go in blocks, so that the memory of the controller does not bound their size.
_BLOCK_MIB = 16
_BLOCK = _BLOCK_MIB * 1024 * 1024


class Connection(ConnectionBase):
    """A guest, entered through a whole and unmodified connection to its host."""

    transport = "inferops.sglang.pct"
    has_pipelining = True
    default_user = "root"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arguments = (args, kwargs)
        self._given: dict[str, Any] = {}
        self._host_side: ConnectionBase | None = None

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        """Take the options; those of ssh are for the connection to the host, made when it is first needed."""
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self._given = {"task_keys": task_keys, "var_options": var_options, "direct": direct}
        self._host_side = None

    def _connect(self) -> Connection:
        self._connected = True
        return self

    @ensure_connect
    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run a shell command in the guest; the exit code is always the command's own."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        way = self._door()
        token = secrets.token_hex(16)
        display.vvv("ENTER %s: %s" % (way.label, cmd), host=way.host)
        line = self._checked(pct_command.enter, way, cmd, token)
        try:
            code, stdout, stderr = self._on_host(way, line, in_data, sudoable)
        except AnsibleConnectionFailure:
            if in_data:
                # Data that nobody takes looks like a broken connection, but it may be the guest that is not there.
                self._require_guest(way)
            raise
        ending = pct_command.read_ending(stderr, token)
        if ending.code is None:
            self._fail(way, ending, code)
        return ending.code, stdout, ending.stderr

    @ensure_connect
    def put_file(self, in_path: str, out_path: str) -> None:
        """Write a file of the controller to the guest; a new one can be read by root only."""
        super().put_file(in_path, out_path)
        display.vvv("PUT %s TO %s" % (in_path, out_path), host=self._door().host)
        if not os.path.exists(in_path):
            raise AnsibleFileNotFound("there is no file %s on the controller to be sent to the guest" % in_path)
        with open(in_path, "rb") as source:
            block = source.read(_BLOCK)
            if not block:
                self._transfer(pct_command.make_empty(out_path), None, in_path, out_path)
            append = False
            while block:
                self._transfer(pct_command.write_file(out_path, append), block, in_path, out_path)
                append = True
                block = source.read(_BLOCK)

    @ensure_connect
    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Write a file of the guest to the controller."""
        super().fetch_file(in_path, out_path)
        display.vvv("FETCH %s TO %s" % (in_path, out_path), host=self._door().host)
        with open(out_path, "wb") as target:
            number, length = 0, _BLOCK
            while length == _BLOCK:
                command = pct_command.read_block(in_path, number, _BLOCK_MIB)
                block = self._transfer(command, None, in_path, out_path)
                target.write(block)
                number, length = number + 1, len(block)

    def reset(self) -> None:
        """Close the connection to the host, also one that ssh keeps open for later."""
        if not self._is_local():
            self._host_connection().reset()
        self._connected = False

    def close(self) -> None:
        """Leave the connection to the host as its own plugin does."""
        if self._host_side is not None:
            self._host_side.close()
        self._connected = False

    # ---- the guest ----

    def _door(self) -> pct_command.Door:
        return self._checked(
            pct_command.door,
            "localhost" if self._is_local() else self.get_option("host") or self._play_context.remote_addr,
            self.get_option("vmid"),
            self.get_option("guest_command"),
            self.get_option("host_sudo"),
        )

    @staticmethod
    def _checked(make: Any, *args: Any) -> Any:
        try:
            return make(*args)
        except pct_command.GuestError as error:
            raise AnsibleError(str(error)) from error

    def _transfer(self, command: str, data: bytes | None, in_path: str, out_path: str) -> bytes:
        code, stdout, stderr = self.exec_command(command, in_data=data, sudoable=False)
        if code != 0:
            raise AnsibleError(
                "%s could not be copied to %s through %s: %s"
                % (in_path, out_path, self._door().label, stderr.decode("utf-8", "replace").strip())
            )
        return stdout

    def _fail(self, way: pct_command.Door, ending: pct_command.Ending, code: int) -> NoReturn:
        if ending.refusal is not None:
            raise AnsibleConnectionFailure(pct_command.refused(way, ending.refusal))
        status, stderr = self._ask_status(way)
        raise AnsibleConnectionFailure(pct_command.explain(way, ending.stderr, code, status, stderr))

    def _require_guest(self, way: pct_command.Door) -> None:
        """Fail with what the host says about the guest, unless it runs."""
        status, stderr = self._ask_status(way)
        if not pct_command.runs(status):
            raise AnsibleConnectionFailure(pct_command.explain(way, b"", 0, status, stderr))

    def _ask_status(self, way: pct_command.Door) -> tuple[bytes, bytes]:
        line = self._checked(pct_command.ask_status, way, secrets.token_hex(16))
        _code, status, stderr = self._on_host(way, line, None, False)
        return status, stderr

    # ---- its host ----

    def _is_local(self) -> bool:
        return bool(self.get_option("host_is_local"))

    def _host_connection(self) -> ConnectionBase:
        """The connection to the host, in the state that the task has put this one in."""
        if self._host_side is None:
            args, kwargs = self._arguments
            name = "ansible.builtin.local" if self._is_local() else "ansible.builtin.ssh"
            self._host_side = connection_loader.get(name, *args, **kwargs)
            self._host_side.set_options(**self._given)
            if not self._is_local():
                # A terminal would mix stdout with stderr, where the end of a command is told.
                self._host_side.set_option("use_tty", False)
        self._host_side._play_context = self._play_context
        # What a become plugin asks for is asked inside the guest, but is answered by who reads its output.
        self._host_side.become = self.become
        return self._host_side

    def _on_host(
        self, way: pct_command.Door, line: str, in_data: bytes | None, sudoable: bool
    ) -> tuple[int, bytes, bytes]:
        try:
            return self._host_connection().exec_command(line, in_data=in_data, sudoable=sudoable)
        except AnsibleConnectionFailure as error:
            # The type says more: a refused login, or a password that was not asked for in time.
            raise type(error)(
                "The Proxmox host %s cannot be reached, so nothing is known of its guest %s: %s"
                % (way.host, way.guest, error)
            ) from error
