"""A headless Chromium, driven over a pipe by the DevTools protocol: no library, no port.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.process import ServerError, find_program
from tests.servers.reaper import watched

PROGRAM = "chromium-headless-shell"
#: Only reached when it fails; the machine may be busy.
PATIENCE_S = 120.0
_KEYS = {"Tab": 9, "Enter": 13, " ": 32}
_OPTIONS = (
    "--remote-debugging-pipe",
    "--no-sandbox",  # it needs user namespaces, and the only server it talks to is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--window-size=1280,900",
)


class Chromium:
    """One browser with one page."""

    def __init__(self, directory: Path) -> None:
        """`directory`: of its profile."""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The protocol's pipes are the descriptors 3 and 4; bash, since dash knows one digit only.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        words = [find_program(PROGRAM), *_OPTIONS, f"--user-data-dir={directory}"]
        self.process = watched(
            subprocess.Popen(
                ["bash", "-c", script, "bash", *words, "about:blank"],
                pass_fds=(to_read, to_write),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[str] = []
        #: What the console says: errors, violations of the content security policy.
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, return its result. Raises: ServerError."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise ServerError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise ServerError(f"Chromium does not answer: {what}")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        match message.get("method"):
            case "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(message["params"]["exceptionDetails"]))
            case str(event):
                self._events.append(event)
        return message

    def go(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.loads(lambda: self.call("Page.navigate", url=url))

    def loads(self, act: Callable[[], object]) -> None:
        """Do what opens another page, and wait until it is loaded."""
        self._events.clear()
        act()
        while "Page.loadEventFired" not in self._events:
            self._next("a page is loaded")

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise ServerError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.ask(script)):
            if time.monotonic() > deadline:
                raise ServerError(f"not true: {script}; {self.ask('document.body.innerText')}")
            time.sleep(0.1)
        return found

    def press(self, key: str) -> None:
        """Press and release a key."""
        more = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)
