"""Long work at a terminal: a bar while it runs, and a clear end at Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.cli.command import ROOT, cordata, write_config
from tests.integration.cli.mending import app
from tests.servers.reaper import watched

from cordata import Context, Tx, connect

COUNT = 20_000


def filled(directory: Path) -> Path:
    """A store with so many delayed entries."""
    config = write_config(directory, app="tests.integration.cli.mending:app")
    assert cordata("migrate", "--config", str(config)).returncode == 0

    async def unit(tx: Tx) -> None:
        for _ in range(COUNT // 10):
            await tx.publish("order.made", {}, delay_s=3600.0)

    async def main(ctx: Context) -> None:
        for _ in range(10):
            await ctx.run(unit)

    async def fill() -> None:
        async with connect(app, config) as ctx:
            await main(ctx)

    asyncio.run(fill())
    return config


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = watched(
            subprocess.Popen(
                [sys.executable, "-m", "cordata", *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=theirs,
                text=True,
            )
        )
        os.close(theirs)
        self.shown = ""

    def until(self, pattern: str) -> None:
        """Read until the terminal shows it."""
        deadline = time.monotonic() + 30
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline and self._read(), self.shown

    def ended(self) -> tuple[int, str]:
        """Exit code and stdout."""
        out = self.process.communicate(timeout=30)[0]
        while self._read():
            pass
        os.close(self._ours)
        return self.process.returncode, out

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 5.0)[0]:
            return False
        try:
            data = os.read(self._ours, 4096)
        except OSError:  # EIO: the last one with the other end has ended
            return False
        self.shown += data.decode()
        return bool(data)


def test_bar_is_shown_and_ctrl_c_ends_between_two_units(tmp_path: Path) -> None:
    config = filled(tmp_path)
    command = ("outbox", "retry", "--all", "--config", str(config))
    terminal = Terminal(*command)
    terminal.until(r"\[#*-+\] +\d+ %  [\d,]+ due now")
    terminal.process.send_signal(signal.SIGINT)
    code, out = terminal.ended()
    assert code == 130, terminal.shown
    done = int(out.removesuffix(" due now\n").replace(",", ""))
    assert 0 < done < COUNT and done % 200 == 0
    assert "stopped by Ctrl-C: these are done, the rest is as it was" in terminal.shown
    assert "Traceback" not in terminal.shown
    # Each unit is whole, and the same command does the rest; no bar where there is no terminal.
    rest = cordata(*command)
    assert (rest.returncode, rest.stderr) == (0, "")
