"""A command at a terminal, and what the terminal shows."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.cli.command import ROOT
from tests.servers.reaper import watched


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(
        self, *arguments: str, program: str = "cordata", given: Path | None = None, **more: str
    ) -> None:
        """`given`: what it reads, instead of the terminal. `more`: of its environment."""
        self._ours, theirs = pty.openpty()
        stdin = theirs if given is None else os.open(given, os.O_RDONLY)
        self.process = watched(
            subprocess.Popen(
                [sys.executable, "-m", program, *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}", **more},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=theirs,
                text=True,
            )
        )
        for end in {theirs, stdin}:
            os.close(end)
        self.shown = ""

    def until(self, pattern: str) -> None:
        """Read until the terminal shows it."""
        deadline = time.monotonic() + 60
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline and self._read(), self.shown

    def ended(self) -> tuple[int, str]:
        """Exit code and stdout."""
        # First what it shows: a terminal takes a few kilobytes, then its writer waits for a reader.
        while self._read():
            pass
        out = self.process.communicate(timeout=300)[0]
        os.close(self._ours)
        return self.process.returncode, out

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 60.0)[0]:
            return False
        try:
            data = os.read(self._ours, 4096)
        except OSError:  # EIO: the last one with the other end has ended
            return False
        self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        return bool(data)
