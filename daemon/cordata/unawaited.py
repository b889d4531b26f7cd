"""Raises an error for coroutines that were never awaited, of which Python only warns.

Python warns when such a coroutine is freed, in the context of the code that frees it: nearly always
the function that lacks the `await`, while it runs or when it ends.
"""

from __future__ import annotations

import gc
import warnings
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TextIO

from cordata.errors import CordataError

_found: ContextVar[list[str] | None] = ContextVar("never_awaited", default=None)
_HERE = str(Path(__file__).parent)
_TEXT = "coroutine .* was never awaited"


class NeverAwaited(CordataError):
    """A coroutine was never awaited."""

    code = "never_awaited"
    shown = True


class require_awaits:
    """`with require_awaits(): ...`: a coroutine that is never awaited in the block is an error.

    Raises: NeverAwaited at the end of the block, unless the block raised another error.
    """

    __slots__ = ("_before", "_own")

    def __enter__(self) -> None:
        if warnings.showwarning is not _show:
            _install()
        self._before = _found.get()
        self._own: list[str] = []
        _found.set(self._own)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _found.set(self._before)
        if self._own and (kind is None or kind is StopIteration):
            raise NeverAwaited(
                "; ".join(self._own), hint="write await before the call, or close() the coroutine"
            ) from None


def _install() -> None:
    """Install `_show`, also again after other code, such as pytest, has replaced it."""
    global _before
    _before = warnings.showwarning
    warnings.showwarning = _show
    # Python shows a warning once for each line, and drops the rest.
    warnings.filterwarnings("always", _TEXT, RuntimeWarning)


_before = warnings.showwarning
_in_gc = False


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    found = _found.get()
    # A coroutine that the garbage collector frees may come from any function.
    if found is not None and not _in_gc and category is RuntimeWarning:
        text = str(message).partition("\n")[0]
        if text.endswith("was never awaited"):
            near = "" if filename.startswith(_HERE) else f" at {Path(filename).name}:{lineno}"
            found.append(text + near)
            return
    _before(message, category, filename, lineno, file, line)


def _mark_gc(phase: str, info: dict[str, int]) -> None:
    global _in_gc
    _in_gc = phase == "start"


gc.callbacks.append(_mark_gc)
