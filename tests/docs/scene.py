# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set the scene of a story: a folder with the page's files, and test hosts that are what the page supposes."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from ansible.inventory.helpers import get_group_vars
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader

from .blocks import Block
from .hosts import TestHosts
from .pages import ROOT

HERE = Path(__file__).resolve().parent
# What a reader writes into a file that ansible-vault opens.
_EDITOR = """#!/bin/sh
[ -s "$1" ] || echo 'vault_sglang_api_key: a-key-of-tests' >"$1"
"""
_INVENTORY = re.compile(r"^ansible\S*\b.*?\s(?:-i|--inventory)[= ](\S+)", re.MULTILINE)
# Paths and users that a page names for its hosts, wherever it does so.
_NAMED = re.compile(r"sglang_(?:\w+_)?(python|draft_model_path|model_path|user)[:=] *\"?([\w./-]+)")
# A user who may log in, and become root as examples/ has it; a page about permissions says more.
_LOGIN = """
id {user} 2>/dev/null || useradd --create-home --shell /bin/bash {user}
install -D -m 600 -o {user} /root/.ssh/authorized_keys ~{user}/.ssh/authorized_keys
chown {user} ~{user}/.ssh
echo '{user} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{user}
"""
_RELEASE = "ls -d /var/lib/sglang/*/releases/*/proof.json | cut -d/ -f7 | sort | head -n1"


class StoryError(AssertionError):
    """A block does not do what the page says; the message names it, and has all that was printed."""


class Scene:
    """The folder and the hosts of one story."""

    def __init__(self, name: str, blocks: Sequence[Block], hosts: TestHosts, folder: Path, archive: Path) -> None:
        self.name = name
        self.folder = folder
        self.hosts = hosts
        self._blocks = blocks
        self._archive = archive
        self._addresses: Dict[str, int] = {}  # of the page's hosts, with the number of the test host behind each
        self._left_out: Dict[str, List[str]] = {}  # by inventory, its hosts that have no test host
        self._known = folder / ".documented_hosts.json"
        self.environment = self._environment()

    def prepare(self, collections: Path) -> None:
        """Write the files, know the hosts, and make them what the page supposes."""
        self._provide()
        for block in reversed(self._blocks):  # the first block of a name is the one that its first commands find
            self.write(block)
        installs = any(re.search("^\\$ ansible-galaxy collection install", block.text, re.M) for block in self._blocks)
        if not installs:
            home = self.folder / ".home" / ".ansible"
            home.mkdir(parents=True)
            (home / "collections").symlink_to(collections)
        self._know_hosts()
        self._fit_hosts()

    def _provide(self) -> None:
        """Lay out what the reader of the page has already: the sources, the examples, and an inventory."""
        for name in ("tests", "benchmarks"):
            (self.folder / name).symlink_to(ROOT / name)
        if (ROOT / "examples").is_dir():
            shutil.copytree(ROOT / "examples", self.folder / "examples")
        shutil.copy(HERE / "hosts.yml", self.folder)
        # Ansible asks its workers a thousand times a second how they do; while other tests run that adds up.
        home = self.folder / ".home"
        home.mkdir()
        (home / ".ansible.cfg").write_text("[defaults]\ninternal_poll_interval = 0.01\n", encoding="utf-8")
        editor = self.folder / ".bin" / "editor"
        editor.write_text(_EDITOR, encoding="utf-8")
        editor.chmod(0o755)

    def _environment(self) -> Dict[str, str]:
        binaries = self.folder / ".bin"
        binaries.mkdir(parents=True)
        environment = {
            **self.hosts.environment,
            "PATH": f"{binaries}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin",
            "HOME": str(self.folder / ".home"),
            "PWD": str(self.folder),
            "COLUMNS": "160",
            "EDITOR": str(binaries / "editor"),
            "LANG": "C.UTF-8",
            "DOCUMENTED_HOSTS": str(self._known),
            "ANSIBLE_VARS_PLUGINS": str(HERE / "vars_plugins"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_DEPRECATION_WARNINGS": "false",
            "ANSIBLE_NOCOLOR": "1",
        }
        for name in ("ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_CONFIG", "ANSIBLE_HOME", "PYTHONPATH"):
            environment.pop(name, None)
        return environment

    def write(self, block: Block) -> None:
        """Write the file that a block is, if it is one."""
        if block.file and not block.file.startswith("/"):
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")

    def _know_hosts(self) -> None:
        """Put a test host behind each address of the inventories that the story uses."""
        named = ["hosts.yml", *(name for block in self._blocks for name in _INVENTORY.findall(_commands_text(block)))]
        hosts: Dict[str, Dict[str, Any]] = {}
        for source in dict.fromkeys(name for name in named if "$" not in name):
            path = source if "," in source else str(self._path(source))
            manager = InventoryManager(loader=DataLoader(), sources=[path])
            if not manager.hosts:
                raise StoryError(f"{self.name}: the inventory {source} has no hosts, or is none")
            addresses: Dict[str, int] = {}
            for host in _one_of_each_group_first(manager):
                variables = {**get_group_vars(host.get_groups()), **host.get_vars()}
                if (
                    str(variables.get("ansible_host", host.name)) not in addresses
                    and len(addresses) == self.hosts.count
                ):
                    self._left_out.setdefault(source, []).append(host.name)
                    # It is nowhere, and no restart must wait until it serves.
                    hosts.setdefault(host.name, {"sglang_replica_group": "left out"})
                else:
                    hosts[host.name] = self._connection(host.name, variables, addresses)
            self._addresses.update(addresses)
        everywhere = {
            # The stand-in's generations cost the machine of the tests more than they show.
            "sglang_soak_requests": 8,
            "sglang_drain_timeout": 5,
        }
        self._known.write_text(json.dumps({"all": everywhere, "hosts": hosts}), encoding="utf-8")
        self._ssh(hosts)

    def _connection(self, name: str, variables: Dict[str, Any], addresses: Dict[str, int]) -> Dict[str, Any]:
        if variables.get("ansible_connection") == "local":
            return {"ansible_python_interpreter": sys.executable}
        number = addresses.setdefault(str(variables.get("ansible_host", name)), len(addresses) + 1)
        user = variables.get("ansible_user", "root")
        if user != "root":
            self.hosts.run(number, _LOGIN.format(user=user))
        return {**self.hosts.variables(number), "ansible_user": user}

    def _path(self, name: str) -> Path:
        """Return a file that the page names, also where it goes into the folder of examples first."""
        places = [self.folder / name, self.folder / "examples" / name]
        return next((place for place in places if place.exists()), places[0])

    def _ssh(self, hosts: Dict[str, Dict[str, Any]]) -> None:
        """Let the reader's own ssh reach them too, by the names of the inventory."""
        names = {**{name: variables.get("ansible_host") for name, variables in hosts.items()}}
        names.update({name: self.hosts.variables(number)["ansible_host"] for name, number in self._addresses.items()})
        entries = "".join(f"Host {name}\n  HostName {address}\n" for name, address in names.items() if address)
        config = self.folder / ".ssh_config"
        config.write_text(
            f"{entries}Host *\n  IdentityFile {self.hosts.key}\n  StrictHostKeyChecking no\n"
            "  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
            encoding="utf-8",
        )
        wrapper = self.folder / ".bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {self.hosts.ssh} -F {config} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)

    def _fit_hosts(self) -> None:
        """Make the paths and users that the page names for its hosts."""
        stand_ins = {
            "model_path": "/models/target",
            "draft_model_path": "/models/draft-eagle3",
            "python": "/opt/sglang",
        }
        commands = []
        for what, value in dict.fromkeys(match for block in self._blocks for match in self._named(block)):
            if what == "user" and any(f" {value}\n" in block.text for block in self._blocks if "useradd" in block.text):
                continue  # the page has its reader make this one
            if what == "user":
                commands.append(f"id {value} 2>/dev/null || useradd --create-home {value}")
            elif value.startswith("/"):
                path = Path(value).parent.parent if what == "python" else Path(value)
                commands.append(f"[ -e {path} ] || {{ mkdir -p {path.parent}; ln -s {stand_ins[what]} {path}; }}")
        for number in set(self._addresses.values()) if commands else ():
            self.hosts.run(number, "; ".join(commands))

    @staticmethod
    def _named(block: Block) -> List[Tuple[str, str]]:
        # What a command names may be missing on purpose.
        return _NAMED.findall(block.text) if block.language == "yaml" else []

    # ---- what the page's words stand for ----------------------------------------------------------------------------

    def limited(self, text: str) -> str:
        """Leave out of a run the hosts of a large inventory that have no test host: one of each group has."""
        source = _INVENTORY.search(text)
        left_out = self._left_out.get(source.group(1)) if source else None
        if not left_out or not re.match(r"ansible(-playbook)? ", text) or "--limit" in text:
            return text
        return f"{text} --limit '!{',!'.join(left_out)}'"

    def number(self, name: str) -> int:
        """Return the test host behind a name of the page; the first one without a name."""
        known = json.loads(self._known.read_text(encoding="utf-8"))["hosts"]
        address = known.get(name, {}).get("ansible_host")
        for number in range(1, self.hosts.count + 1):
            if not name or name == f"gpu-{number}" or address == self.hosts.variables(number)["ansible_host"]:
                return number
        raise StoryError(f"{self.name}: the host {name} is not in the story's inventory")

    def value(self, name: str) -> str:
        """Return what a word in braces of a substitution stands for."""
        if name == "folder":
            return str(self.folder)
        if name == "archive":
            return str(self._archive)
        if name == "root":
            return str(ROOT)
        if name == "oldest_release":
            return self.hosts.run(1, _RELEASE).strip()
        raise KeyError(name)


def _one_of_each_group_first(manager: InventoryManager) -> List[Any]:
    """Return the hosts of an inventory, so that a few from the beginning are of all kinds that it has."""
    hosts = list(manager.hosts.values())

    def place(host):
        return min(group.get_hosts().index(host) for group in host.groups) if host.groups else 0

    return sorted(hosts, key=place)


def _commands_text(block: Block) -> str:
    return "\n".join(line[2:] for line in block.text.split("\n") if line.startswith("$ "))
