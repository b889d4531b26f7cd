"""Progress of long work on stderr; Ctrl-C ends the work between two transactions."""

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
    """Ctrl-C was pressed; the work done so far is committed."""


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Context manager: a bar on stderr, removed at the end; none if stderr is not a terminal."""

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
        """Draw the share that is done, 0 to 1 (None: unknown), and the text beside it."""
        if not sys.stderr.isatty():
            return
        if self._drawn is None:
            self._drawn = _begin()
        progress, task = self._drawn
        total = None if share is None else 1.0
        progress.update(task, completed=share or 0.0, total=total, text=text, refresh=True)

    def say(self, text: str) -> None:
        """Print a line on stderr, above the bar."""
        if self._drawn is None:
            click.echo(text, err=True)
        else:
            self._drawn[0].console.print(text, highlight=False, markup=False)


class Counter(AbstractContextManager["Counter"]):
    """Context manager: counts completed items and draws the progress.

    After the first Ctrl-C the current transaction ends, and the next call raises Interrupted; the
    second Ctrl-C raises KeyboardInterrupt.
    """

    def __init__(self, what: str) -> None:
        """`what` is shown after the count, for example "deleted"."""
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
        """Set the number of completed items and the share done, 0 to 1. Raises: Interrupted."""
        self.count = count
        if time.monotonic() >= self._next_deadline:
            self._next_deadline = time.monotonic() + _DRAW_S
            self._bar.draw(share, f"{count:,} {self.what}")
        if self._interrupted and share < 1.0:
            raise Interrupted

    async def each(
        self, ids: Sequence[str], act: Callable[[str], Awaitable[int]]
    ) -> tuple[int, list[str]]:
        """Await `act` for each id. Returns the sum of its results, and the ids for which it was 0.

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
        # No thread and no redirected output: `draw` refreshes it.
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
    )
    progress.start()
    return progress, progress.add_task("", total=1.0, text="")
