# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell a story: type its commands and run its tasks, in the order of the page, on test hosts."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from typing import Any, Iterator, List, Sequence, Tuple

import pexpect
import yaml

from .blocks import Block
from .console import HOST, Command, commands_of, matches
from .content import Kind, kind_of, load
from .scene import Scene, StoryError
from .steps import lighter, steps_of
from .substitutions import typed

# Seconds for a command; none of a page takes a tenth of it on an idle machine.
LIMIT = 300
# What is typed where a command asks for a password, which it does on a terminal only.
PASSWORD = {r"(?i)vault password[^\n]*: ": "a-password-of-tests\n"}
# A terminal keeps folder and variables from one command to the next.
_TYPED = """
[ ! -e {state} ] || . {state}
{text}
status=$?
export -p >{state}
printf 'cd %q\\n' "$PWD" >>{state}
exit $status
"""


class Story:
    """One story, told in a scene that was set for it."""

    def __init__(self, scene: Scene, blocks: Sequence[Block]) -> None:
        self._scene = scene
        self._blocks = blocks
        self._left: List[int] = []  # process groups of what runs on in the background

    def tell(self) -> Iterator[str]:
        """Do what the blocks say, one after the other; yields each step and what it took.  Raises StoryError."""
        unread = list(self._blocks)
        for step in steps_of(self._blocks):
            started, used = time.monotonic(), self._scene.hosts.processor_seconds()
            while unread and unread[0] is not step[-1]:
                self._scene.write(unread.pop(0))
            if step[0].language == "console":
                self._type(step[0])
            elif step[0].language == "sh":
                self._expect(
                    step[0], typed(step[0].text, self._scene.value), step[0].notes.get("expect", "0").split(",")
                )
            elif step[0].language == "sudoers":
                self._sudoers(step[0])
            else:
                self._run_tasks(step)
            took, used = time.monotonic() - started, self._scene.hosts.processor_seconds() - used
            yield f"{took:6.1f} s ({used:.1f} s of a processor)  {', '.join(str(block) for block in step)}"

    def _type(self, block: Block) -> None:
        for command in commands_of(block.text):
            text = typed(command.text, self._scene.value)
            text = self._scene.limited(lighter(text, block))
            where = HOST if "host" in block.notes else command.where
            if where == HOST and not text.startswith("make "):
                words = self._scene.hosts.command(self._scene.number(block.notes.get("host", "")), text)
                text = shlex.join(words)
            printed = self._expect(block, text, block.notes.get("expect", "0").split(","), command)
            shown = typed("\n".join(command.output), self._scene.value)
            if shown and not matches(shown.split("\n"), printed):
                raise StoryError(f"{block}\n$ {command.text}\nprinted:\n{printed}\nand the page shows:\n{shown}")

    def _run_tasks(self, step: Sequence[Block]) -> None:
        """Run lists of tasks and plays that follow each other as one playbook."""
        plays: List[Any] = []
        for block in step:
            data = load(block.text)
            if kind_of(block) is Kind.TASKS:
                pattern = block.notes.get("host", "all")
                data = [{"name": str(block), "hosts": pattern, "gather_facts": False, "tasks": data}]
            plays += data
        path = self._scene.folder / ".blocks.yml"
        path.write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
        expected = step[-1].notes.get("expect", "0").split(",")
        text = self._scene.limited(lighter(f"ansible-playbook -i hosts.yml {path}", step[0]))
        self._expect(step[0], text, expected)

    def _sudoers(self, block: Block) -> None:
        """Let sudo on the host read the rules, and leave them there for what follows."""
        number = self._scene.number(block.notes.get("host", ""))
        # The file that it names, so that a later rule takes the place of an earlier one.
        first = block.text.split("\n", 1)[0]
        path = first[2:] if first.startswith("# /etc/sudoers.d/") else "/etc/sudoers.d/story"
        self._scene.hosts.run(number, f"install -m 440 /dev/stdin {path} <<'END'\n{block.text}END\nvisudo -cf {path}")

    def _expect(self, block: Block, text: str, expected: Sequence[str], command: Any = None) -> str:
        status, printed = self._shell(text)
        if status is None:
            raise StoryError(f"{block}\n$ {text}\nran longer than {LIMIT} s:\n{printed}")
        if str(status) not in expected:
            shown = command.text if isinstance(command, Command) else text
            raise StoryError(
                f"{block}\n$ {shown}\n(typed: {text})\nended with {status}, not {' or '.join(expected)}:\n{printed}"
            )
        return printed

    def _shell(self, text: str) -> Tuple[Any, str]:
        """Type a command; returns its status (None: it had to be ended) and what it printed.

        It prints into a file: what it leaves in the background would keep a pipe open.
        """
        script = _TYPED.format(text=text, state=self._scene.folder / ".terminal")
        if re.search(r"ansible-vault|--ask-vault-pass", text):
            printed, status = pexpect.run(
                shlex.join(["bash", "-c", script]),
                timeout=LIMIT,
                withexitstatus=True,
                events=PASSWORD,
                cwd=self._scene.folder,
                env=self._scene.environment,
            )
            return status, printed.decode(errors="replace")
        output = self._scene.folder / ".output"
        with output.open("wb") as printed:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self._scene.folder,
                env=self._scene.environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._left.append(process.pid)
        try:
            status = process.wait(LIMIT)
            os.killpg(process.pid, 0)
        except subprocess.TimeoutExpired:
            status = None
        except ProcessLookupError:  # nothing runs on
            self._left.remove(process.pid)
        return status, output.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """End what the commands left in the background."""
        for group in self._left:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
