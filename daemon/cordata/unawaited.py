"""Coroutines that were never awaited: a call without its `await` does nothing, Python only warns.

Python notices when such a coroutine is freed, and warns in the context of the code that frees it:
nearly always the function that forgot it, while it runs or as it ends.
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
    """While inside, a coroutine that is never awaited is an error: `with require_awaits(): ...`.

    Raised at the end, unless another error is on its way. Raises: NeverAwaited.
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
    """Install it anew where other code, such as pytest, has replaced filters and showwarning."""
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
    # What the garbage collector finds may be of any function.
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
