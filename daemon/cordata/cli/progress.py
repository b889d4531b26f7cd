"""Long work at a terminal: a bar on stderr, and an end between two units at Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from types import FrameType, TracebackType

import click

_SHOW_S = 0.2
_CELLS = 24
#: As a shell has it for a process that SIGINT ended.
EXIT_INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C was pressed; what was done so far is done."""


class Counter(AbstractContextManager["Counter"]):
    """Counts what is done while inside, and shows it on a terminal.

    The first Ctrl-C lets the unit in hand end, then the next call raises Interrupted; the second
    one ends the process as it usually does.
    """

    def __init__(self, what: str) -> None:
        """`what` was done to what is counted: "deleted"."""
        self.what = what
        self.count = 0
        self._interrupted = False
        self._next = time.monotonic() + _SHOW_S
        self._shown = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Counter:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def __call__(self, count: int, share: float) -> None:
        """So many are done, which is that share of the whole, 0 to 1. Raises: Interrupted."""
        self.count = count
        if sys.stderr.isatty() and time.monotonic() >= self._next:
            self._next = time.monotonic() + _SHOW_S
            self._shown = True
            click.echo(f"\r\x1b[K{bar(share)}  {count:,} {self.what}", nl=False, err=True)
        if self._interrupted and share < 1.0:
            raise Interrupted

    async def each(
        self, ids: Sequence[str], act: Callable[[str], Awaitable[int]]
    ) -> tuple[int, list[str]]:
        """Act on one after the other. Returns how many were done, and those with nothing to do.

        Raises: Interrupted.
        """
        total, missing = 0, []
        for number, one in enumerate(ids, start=1):
            done = await act(one)
            total += done
            if not done:
                missing.append(one)
            self(total, number / len(ids))
        return total, missing

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True


def bar(share: float) -> str:
    """`[######------]  50 %`."""
    full = round(_CELLS * min(max(share, 0.0), 1.0))
    return f"[{'#' * full}{'-' * (_CELLS - full)}] {share:4.0%}".replace("%", " %")
