"""Progress of long work on a terminal's stderr, and an end between two units of it at Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_DRAW_S = 0.2


class Interrupted(Exception):
    """Ctrl-C was pressed; what was done so far is done."""


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A bar on stderr while inside, gone afterwards; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._drawn: tuple[Progress, TaskID] | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn is not None:
            self._drawn[0].stop()

    def draw(self, share: float | None, text: str) -> None:
        """Draw the share that is done, 0 to 1 (None: unknown), and a text."""
        if not sys.stderr.isatty():
            return
        if self._drawn is None:
            self._drawn = _begin()
        progress, task = self._drawn
        total = None if share is None else 1.0
        progress.update(task, completed=share or 0.0, total=total, text=text, refresh=True)

    def say(self, text: str) -> None:
        """A line of its own on stderr, above the bar."""
        if self._drawn is None:
            click.echo(text, err=True)
        else:
            self._drawn[0].console.print(text, highlight=False, markup=False)


class Counter(AbstractContextManager["Counter"]):
    """Counts what is done while inside, and draws it.

    The first Ctrl-C lets the current unit end, then the next call raises Interrupted; the second
    one ends the process as it usually does.
    """

    def __init__(self, what: str) -> None:
        """`what` was done to what is counted: "deleted"."""
        self.what = what
        self.count = 0
        self._bar = ProgressBar()
        self._interrupted = False
        self._next_deadline = time.monotonic() + _DRAW_S
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
        self._bar.__exit__(kind, error, trace)

    def __call__(self, count: int, share: float) -> None:
        """So many are done, which is that share of the whole, 0 to 1. Raises: Interrupted."""
        self.count = count
        if time.monotonic() >= self._next_deadline:
            self._next_deadline = time.monotonic() + _DRAW_S
            self._bar.draw(share, f"{count:,} {self.what}")
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


def _begin() -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    progress = Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:3.0f} %  {task.fields[text]}", markup=False),
        console=Console(stderr=True),
        # No thread, and no redirected output: it is drawn when it is called.
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
    )
    progress.start()
    return progress, progress.add_task("", total=1.0, text="")
