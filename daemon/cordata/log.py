"""Log records with the request id and stable MESSAGE_IDs, without the messages of exceptions.

cordata.systemd has the handlers.
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

#: Id of the current request, message or job, for the log lines and rows that it writes.
request_id: ContextVar[str] = ContextVar("request_id", default="")

#: Name of the log handler that a role installs; a command has none.
HANDLER = "cordata"
_FRAMES = 5
_REMOTE = re.compile(r'^  File "([^"]+)", line (\d+), in \S+$', re.MULTILINE)
#: Limit of the keys in a LogThrottle. At the limit it drops all, so some lines are logged early.
_THROTTLED = 1000
#: Limits of `trail`: the frames of one exception, and the exceptions of a chain.
_TRAIL_FRAMES, _TRAIL_ERRORS = 20, 16


def logger(name: str) -> logging.Logger:
    """The logger of one area, for example `cordata.http`."""
    return logging.getLogger(name)


def fields(message_id: str = "", /, **values: object) -> dict[str, object]:
    """`extra=` for a log call: journal fields in upper case, by which `journalctl` filters.

    `log.info("…", extra=fields(events.REQUEST_REFUSED, status=413))` gives STATUS=413.
    They cannot clash with attributes of `logging.LogRecord`, which are lower case.
    """
    extra = {name.upper(): value for name, value in values.items()}
    if message_id:
        extra["MESSAGE_ID"] = message_id
    current = request_id.get()
    if current:
        extra.setdefault("REQUEST_ID", current)
    return extra


def syslog_priority(level: int) -> int:
    """The priority of a logging level in the journal (syslog(3))."""
    if level >= logging.CRITICAL:
        return 2
    if level >= logging.ERROR:
        return 3
    if level >= logging.WARNING:
        return 4
    return 6 if level >= logging.INFO else 7


@contextlib.contextmanager
def in_request(id_: str) -> Iterator[None]:
    """Within the block, log lines and stored rows have this request id."""
    token = request_id.set(id_)
    try:
        yield
    finally:
        request_id.reset(token)


def frames(trace: TracebackType | None) -> str:
    """The innermost frames of a traceback, `file:line < caller:line`, without any values."""
    places = [f"{_file_name(frame)}:{line}" for frame, line in walk_tb(trace)]
    return " < ".join(reversed(places[-_FRAMES:])) or "no frame"


def error_places(error: BaseException) -> str:
    """`frames` of an exception; for CommandFailed also the type and frames in the child."""
    text = frames(error.__traceback__)
    return f"{text}; {_in_the_pool(error)}" if isinstance(error, CommandFailed) else text


def error_summary(error: BaseException) -> str:
    """The type of an error; its message and hint, too, if its class allows to log them."""
    text = type(error).__name__
    if isinstance(error, CordataError) and error.shown:
        text += ": " + "; ".join(str(error).splitlines())
        text += f" ({error.hint})" if error.hint else ""
    return text


def error_place(error: BaseException) -> str:
    """`file:line` of the innermost frame outside of cordata; if there is none, of the innermost."""
    found, in_application = "no frame", False
    for frame, line in walk_tb(error.__traceback__):
        in_runtime = frame.f_globals.get("__name__", "").startswith("cordata.")
        if not in_runtime or not in_application:
            found = f"{_file_name(frame)}:{line}"
        in_application = in_application or not in_runtime
    return found


def _file_name(frame: FrameType) -> str:
    return frame.f_code.co_filename.rpartition("/")[2]


def remote_frames(trace: str) -> str:
    """As `frames`, for a traceback in text form."""
    found = [f"{file.rsplit('/', 1)[-1]}:{line}" for file, line in _REMOTE.findall(trace)]
    return " < ".join(reversed(found[-_FRAMES:])) or "no frame"


def _in_the_pool(error: CommandFailed) -> str:
    return f"in the pool {error.type} at {remote_frames(error.traceback)}"


def trail(error: BaseException) -> str:
    """An exception in a form that may be logged: types and places, without messages and values.

    One line per exception, then its frames, the innermost first: `file:line in function`. Its
    cause or context and the members of a group follow, as in Python's own traceback.
    """
    return "\n".join(_trail(error, "", set()))


def _trail(error: BaseException, how: str, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    yield f"{how}{_type_name(error)}{error_summary(error).removeprefix(type(error).__name__)}"
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
    """A stream handler that reports a failed log call without its arguments."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Called when `emit` failed; logging's own version would print the arguments."""
        log_unformattable(record)


def log_unformattable(record: logging.LogRecord) -> None:
    """Report on stderr that a log call failed, and where."""
    error = sys.exception()
    if error is not None and not isinstance(error, OSError) and sys.stderr is not None:
        name = type(error).__name__
        place = f"{record.pathname}:{record.lineno}"
        text = f"a log call at {place} failed with {name} at {frames(error.__traceback__)}\n"
        with contextlib.suppress(OSError):
            sys.stderr.write(text)


class TrailFormatter(logging.Formatter):
    """Formats a record as its message, with the `trail` of an exception on further lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, and the exception if there is one."""
        return "\n".join(filter(None, (message_of(record), self.trail_of(record))))

    def trail_of(self, record: logging.LogRecord) -> str:
        """The `trail` of the record's exception, or that of a child of the pool; "": none."""
        if record.exc_info:
            return self.formatException(record.exc_info)
        trail_of_child: str = getattr(record, "child_trail", "")
        return trail_of_child

    def formatException(self, ei: Any) -> str:
        """The `trail` of an exception; Python's own traceback at level debug."""
        error: BaseException | None = ei[1]
        if error is None:
            return "no exception"
        return super().formatException(ei) if shows_messages() else trail(error)


@contextlib.contextmanager
def handled_by(handler: logging.Handler) -> Iterator[None]:
    """Within the block, this handler gets all log records of the process, too."""
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def shows_messages() -> bool:
    """Whether messages and values may be logged: at level debug, which is for developers."""
    return logging.getLogger().level <= logging.DEBUG


def message_of(record: logging.LogRecord) -> str:
    """The text of a record, without the values that asyncio adds to its messages, such as
    `exception=ValueError('...')` of a task and the arguments of a callback.
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
    """The error's text, with its hint in parentheses."""
    return f"{error} ({error.hint})" if error.hint else str(error)


class LogThrottle:
    """Limits repeated log lines: a line is due at once, and again after `again_s` seconds.

    `key` identifies a line: its text, or a name for it.
    """

    def __init__(self, *, again_s: float = 60.0) -> None:
        """By default a line is repeated each minute, so that it is found near the log's end."""
        self._again_s = again_s
        self._deadlines: dict[str, float] = {}

    def is_due(self, key: str, *, now: float | None = None) -> bool:
        """Whether to log the line now; if so, it counts as logged. `now`: monotonic seconds."""
        now = clock.monotonic() if now is None else now
        if now < self._deadlines.get(key, now):
            return False
        if len(self._deadlines) >= _THROTTLED:
            self._deadlines.clear()
        self._deadlines[key] = now + self._again_s
        return True

    @property
    def has_logged(self) -> bool:
        """Whether a line was logged since the last `reset`: if so, log the recovery, too."""
        return bool(self._deadlines)

    def reset(self) -> None:
        """Forget all lines: the next one is due at once."""
        self._deadlines.clear()
