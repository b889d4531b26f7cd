"""`make run` at a terminal: the demo hub is ready, answers, and Ctrl-C stops it in order."""

from __future__ import annotations

import os
import pty
import re
import signal
import urllib.request
from pathlib import Path

from tests.host.load import BOOKING
from tests.host.machine import CHECKOUT
from tests.servers.process import free_port


def read_until(terminal: int, pattern: str, *, text: str = "") -> str:
    """Everything the terminal shows until the pattern is in it, or its end."""
    while not re.search(pattern, text):
        try:
            text += os.read(terminal, 65_536).decode(errors="replace")
        except OSError:  # EIO: nobody has the other side open any more
            break
    return text


def test_make_run_serves_and_exits_0_when_ctrl_c_is_pressed(tmp_path: Path) -> None:
    port = free_port()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(CHECKOUT)
        os.environ.pop("MAKEFLAGS", None)
        os.execvp("make", ["make", "run", f"PORT={port}", f"STATE={tmp_path / 'state'}"])
    try:
        shown = read_until(terminal, r"Ctrl-C")
        assert re.findall(r"^ready .*$", shown.replace("\r", ""), re.M) == [
            f"ready http://127.0.0.1:{port}"
        ], shown
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/webhook/generic",
            BOOKING.replace("{n}", "1").encode(),
            {"X-Webhook-Secret": "demo", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert answer.status == 200
        os.write(terminal, b"\x03")
        shown = read_until(terminal, r"\0")
        _, status = os.waitpid(pid, 0)
        pid = 0
        assert os.waitstatus_to_exitcode(status) == 0, shown
        ends = re.findall(r"(worker@\d|primary) exited with 0", shown)
        assert sorted(ends[:4]) == [f"worker@{n}" for n in range(4)] and ends[4:] == ["primary"]
    finally:
        os.close(terminal)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
