# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A headless Chromium that a test tells what to do, by the DevTools protocol over two pipes.

Its messages are JSON that ends with a zero byte.  Chromium reads them from descriptor 3 and writes to descriptor 4; no
port is opened.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

# Of one question, on a machine that other work keeps busy (s).
LIMIT = 60.0
_END = b"\0"
_ARGUMENTS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # the tests run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    # Nothing is reached, also where the network could not be cut.
    "--proxy-server=127.0.0.1:9",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def program() -> str:
    """The path of Chromium, or nothing."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


class ChromiumError(Exception):
    """Chromium refused, or gave no answer in time."""


class Chromium:
    """A browser with one page.  Use it in a with statement."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._received = b""
        self._events: List[Dict[str, Any]] = []
        self._session = ""

    def __enter__(self) -> Chromium:
        to_read, self._to_write = os.pipe()
        self._to_read, to_write = os.pipe()
        # A network of its own has nothing but itself, where that may be had.
        cut = ["unshare", "--net", "--"] if os.geteuid() == 0 and shutil.which("unshare") else []
        command = [*cut, program(), *_ARGUMENTS, f"--user-data-dir={self._folder / 'profile'}", "about:blank"]
        self._log = (self._folder / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            # The shell puts the pipes where Chromium looks for them.
            ["bash", "-c", f'exec 3<&{to_read} 4>&{to_write}; exec "$@"', "chromium", *command],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "HOME": str(self._folder)},
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            (page,) = [each for each in self("Target.getTargets")["targetInfos"] if each["type"] == "page"]
            self._session = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: Any) -> None:
        try:
            self._session = ""
            self("Browser.close")
            self._process.wait(LIMIT)
        except (ChromiumError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for descriptor in (self._to_read, self._to_write):
            os.close(descriptor)
        self._log.close()

    def __call__(self, method: str, **parameters: Any) -> Dict[str, Any]:
        """The result of a command.  Raises ChromiumError."""
        number = next(self._numbers)
        message: Dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        try:
            os.write(self._to_write, json.dumps(message).encode() + _END)
        except BrokenPipeError as exc:
            raise ChromiumError(f"it has ended; see {self._log.name}") from exc
        answer = self._next(lambda found: found.get("id") == number)
        if "error" in answer:
            raise ChromiumError(f"{method}: {answer['error'].get('message')}")
        result: Dict[str, Any] = answer["result"]
        return result

    def _next(self, wanted: Callable[[Dict[str, Any]], bool]) -> Dict[str, Any]:
        deadline = time.monotonic() + LIMIT
        while True:
            while _END in self._received:
                text, _end, self._received = self._received.partition(_END)
                message = json.loads(text)
                if "id" not in message:
                    self._events.append(message)
                if wanted(message):
                    return message
            ready, _written, _failed = select.select([self._to_read], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._to_read, 1 << 20) if ready else b""
            if not part:
                raise ChromiumError(f"no answer within {LIMIT:g} s, or it has ended; see {self._log.name}")
            self._received += part

    # ---- what tests ask ---------------------------------------------------------------------------------------------

    def show(self, file: Path, width: int, height: int, dark: bool = False, scale: float = 1.0) -> None:
        """Load a file into a window of this size, as on a phone where it is narrow."""
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", media="", features=[scheme])
        self._events.clear()
        self("Page.navigate", url=file.as_uri())
        if not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._next(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, whose own policy forbids scripts and not this."""
        result = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise ChromiumError(str(result["exceptionDetails"].get("exception", result["exceptionDetails"])))
        return result["result"].get("value")

    def screenshot(self) -> bytes:
        """A PNG of the window."""
        data = self("Page.captureScreenshot", format="png")["data"]
        return base64.b64decode(data)

    def picture(self, box: Dict[str, float]) -> bytes:
        """A PNG of a part of the page, which x, y, width and height say."""
        clip = {**{name: box[name] for name in ("x", "y", "width", "height")}, "scale": 1}
        data = self("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        return base64.b64decode(data)

    def complaints(self) -> List[str]:
        """What the console has: errors, warnings, and what the page's policy forbade."""
        self.evaluate("0")  # what is on its way has arrived by then
        found = []
        for event in self._events:
            if event["method"] == "Log.entryAdded":
                found.append(str(event["params"]["entry"].get("text")))
            elif event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                found.append(json.dumps(event["params"]))
        return found

    def requests(self) -> List[str]:
        """The addresses that the page has asked for, its own included."""
        self.evaluate("0")
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]
