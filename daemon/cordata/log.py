"""Log records carry the request id and stable MESSAGE_IDs, and no message of an exception.

cordata.systemd says where they go.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any, TextIO

from cordata import clock
from cordata.errors import CommandFailed, CordataError

#: Id of the current request, message or job: in every log line and stored row it causes.
request_id: ContextVar[str] = ContextVar("request_id", default="")

#: Name of the handler of a process that has a log, as a role does; a command has none.
HANDLER = "cordata"
_FRAMES = 5
_REMOTE = re.compile(r'^  File "([^"]+)", line (\d+), in \S+$', re.MULTILINE)
#: Lines that a LogThrottle remembers; beyond it all are forgotten, so that some are logged early.
_THROTTLED = 100
#: Frames that `trail` shows of one exception, and exceptions of a chain.
_TRAIL_FRAMES, _TRAIL_ERRORS = 20, 16


def logger(name: str) -> logging.Logger:
    """The logger of one area, for example `cordata.http`."""
    return logging.getLogger(name)


def fields(message_id: str = "", /, **values: object) -> dict[str, object]:
    """`extra=` for a log call: journal fields in upper case, by which `journalctl` filters.

    `log.info("…", extra=fields(events.REQUEST_REFUSED, status=413))` gives STATUS=413.
    Names that `logging.LogRecord` owns cannot clash with them, since those are lower case.
    """
    extra = {name.upper(): value for name, value in values.items()}
    if message_id:
        extra["MESSAGE_ID"] = message_id
    current = request_id.get()
    if current:
        extra.setdefault("REQUEST_ID", current)
    return extra


@contextlib.contextmanager
def in_request(id_: str) -> Iterator[None]:
    """While inside, what is logged and stored carries this request id."""
    token = request_id.set(id_)
    try:
        yield
    finally:
        request_id.reset(token)


def frames(trace: TracebackType | None) -> str:
    """The innermost frames of a traceback, `file:line < caller:line`, without any values."""
    places = [f"{_file_name(frame)}:{line}" for frame, line in walk_tb(trace)]
    return " < ".join(reversed(places[-_FRAMES:])) or "no frame"


def places(error: BaseException) -> str:
    """`frames` of an exception; of a command that failed in the pool, its type and those there."""
    text = frames(error.__traceback__)
    return f"{text}; {_in_the_pool(error)}" if isinstance(error, CommandFailed) else text


def what(error: BaseException) -> str:
    """The type of an error; of one whose message holds no personal data also message and hint."""
    text = type(error).__name__
    if isinstance(error, CordataError) and error.shown:
        text += ": " + "; ".join(str(error).splitlines())
        text += f" ({error.hint})" if error.hint else ""
    return text


def place(error: BaseException) -> str:
    """Where the application's own code stood, `file:line`; else where it was raised."""
    found, own = "no frame", False
    for frame, line in walk_tb(error.__traceback__):
        ours = frame.f_globals.get("__name__", "").startswith("cordata.")
        if not ours or not own:
            found = f"{_file_name(frame)}:{line}"
        own = own or not ours
    return found


def _file_name(frame: FrameType) -> str:
    return frame.f_code.co_filename.rpartition("/")[2]


def remote_frames(trace: str) -> str:
    """As `frames`, of a traceback that is a text."""
    found = [f"{file.rsplit('/', 1)[-1]}:{line}" for file, line in _REMOTE.findall(trace)]
    return " < ".join(reversed(found[-_FRAMES:])) or "no frame"


def _in_the_pool(error: CommandFailed) -> str:
    return f"in the pool {error.type} at {remote_frames(error.traceback)}"


def trail(error: BaseException) -> str:
    """An exception as it may be logged: types and places, never a message or a value.

    One line per exception, then its places, the innermost first: `file:line in function`. What it
    came from and what a group holds follow, as far as Python's own traceback would tell.
    """
    return "\n".join(_trail(error, "", set()))


def _trail(error: BaseException, how: str, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    yield f"{how}{_type_name(error)}{what(error).removeprefix(type(error).__name__)}"
    yield from _places(error.__traceback__)
    if isinstance(error, CommandFailed):
        yield f"  {_in_the_pool(error)}"
    if isinstance(error, BaseExceptionGroup):
        count = len(error.exceptions)
        for number, member in enumerate(error.exceptions, 1):
            if len(seen) >= _TRAIL_ERRORS:
                yield f"{count - number + 1} more in the group"
                break
            yield from _linked(member, f"{number} of {count} in the group: ", seen)
    if error.__cause__ is not None:
        yield from _linked(error.__cause__, "caused by ", seen)
    elif error.__context__ is not None and not error.__suppress_context__:
        yield from _linked(error.__context__, "while handling ", seen)


def _linked(error: BaseException, how: str, seen: set[int]) -> Iterator[str]:
    if id(error) not in seen:
        yield from _trail(error, how, seen) if len(seen) < _TRAIL_ERRORS else (f"{how}another",)


def _places(trace: TracebackType | None) -> list[str]:
    places = [
        f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
        for frame, line in walk_tb(trace)
    ]
    places.reverse()
    if len(places) > _TRAIL_FRAMES:
        half = _TRAIL_FRAMES // 2
        places[half:-half] = [f"  ... {len(places) - 2 * half} more ..."]
    return places


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


class LineHandler(logging.StreamHandler[TextIO]):
    """To stderr."""

    def handleError(self, record: logging.LogRecord) -> None:
        """The stock one prints the arguments of the call."""
        say_unloggable(record)


def say_unloggable(record: logging.LogRecord) -> None:
    """Report on stderr that a log call failed, and where."""
    error = sys.exception()
    if error is not None and not isinstance(error, OSError) and sys.stderr is not None:
        name = type(error).__name__
        place = f"{record.pathname}:{record.lineno}"
        text = f"a log call at {place} failed with {name} at {frames(error.__traceback__)}\n"
        with contextlib.suppress(OSError):
            sys.stderr.write(text)


class TrailFormatter(logging.Formatter):
    """The message, and what `log.trail` tells of an exception on further lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Message and exception."""
        text = message_of(record)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text

    def formatException(self, ei: Any) -> str:
        """Types and places; at level debug all that Python knows."""
        error: BaseException | None = ei[1]
        if error is None:
            return "no exception"
        return super().formatException(ei) if shows_messages() else trail(error)


@contextlib.contextmanager
def handled_by(handler: logging.Handler) -> Iterator[None]:
    """While inside, all that this process logs goes to this handler, too."""
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def shows_messages() -> bool:
    """Whether the log is a developer's."""
    return logging.getLogger().level <= logging.DEBUG


def message_of(record: logging.LogRecord) -> str:
    """The text of a record. asyncio tells values beside it, as in `exception=ValueError('...')` of
    a task and the arguments of a callback, whichever loop of whatever thread it is: they are cut.
    """
    text = record.getMessage()
    if record.name != "asyncio" or shows_messages():
        return text
    return without_values(text)


def without_values(text: str) -> str:
    """A message of asyncio or uvloop, without the reprs in it."""
    return text.partition("\n")[0].partition(" callback ")[0].partition("<")[0].rstrip()


def plural(count: int, noun: str) -> str:
    """`1 event`, `0 events`, `1,200 events`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def with_hint(error: CordataError) -> str:
    """The error, and in parentheses what to do."""
    return f"{error} ({error.hint})" if error.hint else str(error)


class LogThrottle:
    """Decides which lines are due: each at once, and again only now and then while it lasts.

    Lines differ by their text, or by a key that stands for it.
    """

    def __init__(self, *, again_s: float = 60.0) -> None:
        """`again_s`: often enough to be found near the end of the log."""
        self._again_s = again_s
        self._deadlines: dict[str, float] = {}

    def is_due(self, key: str, *, now: float | None = None) -> bool:
        """Whether to log it; counts as logged if so. `now`: monotonic seconds."""
        now = clock.monotonic() if now is None else now
        if now < self._deadlines.get(key, now):
            return False
        if len(self._deadlines) >= _THROTTLED:
            self._deadlines.clear()
        self._deadlines[key] = now + self._again_s
        return True

    @property
    def has_logged(self) -> bool:
        """Whether anything was logged since the last `reset`: its end is worth a line, too."""
        return bool(self._deadlines)

    def reset(self) -> None:
        """It is over: the next line is due at once."""
        self._deadlines.clear()
