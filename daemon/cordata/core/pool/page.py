"""The state page that a child and its worker share: which call the child has in hand, and how long.

The child writes all but `mark`; it may be killed between any two stores, so `begin` writes what it
says of the call first and then, in one aligned store of 8 bytes, that the call has begun.

```
  0  seq       u64  calls begun        16  serial    u64  the manager's number of the last one
  8  done      u64  calls ended        24  started   f64  monotonic seconds
 40  order     u64  number of the last 32  deadline  f64  monotonic seconds; 0: none
                    run begun          48  mark      u64  the worker's: no run up to it may begin
 64  name      u16 bytes, then the command; of a call that the manager does not know only
```
Busy: seq != done. The order of bytes is the machine's own: both sides are on it. A child that is
lent shares a page of the same kind with its client (loan.py), where `serial` and the rest are those
of the client's calls; those are then on the worker's page, too, with their commands.

Taking back: the worker writes the mark, waits for longer than a store takes to be seen by another
core (SETTLE_S), then reads `order`. The child writes `order` and reads the mark after it. So of the
two at least one sees what the other wrote: a run that the worker finds not begun will not begin.
When both see it, the worker finds it begun and the child does not run it, and tells the manager.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from cordata.core.pool.loan import LENT

#: One page of memory; a `memoryview` of the mapped file is what the functions take.
SIZE = 4096
#: From the mark to the look at what was begun.
SETTLE_S = 0.001
_ALL = Struct("@QQQddQ")
_COUNT = Struct("@Q")
_CALL = Struct("@QddQ")
_LENT = Struct("@Qdd")
_NAME = Struct("@H")
_SEQ, _DONE, _SERIAL, _ORDER, _MARK, _COMMAND = 0, 8, 16, 40, 48, 64


class Hand(NamedTuple):
    """What a child has in its hands; of one that is not busy, what it had last."""

    serial: int
    #: Calls ended.
    done: int
    started: float
    deadline: float
    busy: bool
    #: The manager's number of its run.
    order: int = 0
    #: Of a call that the manager does not know.
    command: str = ""


def begin(
    page: bytearray | memoryview, serial: int, started: float, deadline: float, order: int = 0
) -> bool:
    """The child starts a call: from now on it counts as run. False: it was taken back."""
    if 0 < order <= marked(page):
        return False
    _CALL.pack_into(page, _SERIAL, serial, started, deadline, order)
    (seq,) = _COUNT.unpack_from(page, _SEQ)
    _COUNT.pack_into(page, _SEQ, seq + 1)
    if 0 < order <= marked(page):
        end(page)
        return False
    return True


def begin_lent(
    page: bytearray | memoryview, serial: int, started: float, deadline: float, command: bytes
) -> None:
    """The child starts a call of its client, and what it says of orders stands as it was."""
    _NAME.pack_into(page, _COMMAND, len(command))
    page[_COMMAND + _NAME.size : _COMMAND + _NAME.size + len(command)] = command
    _LENT.pack_into(page, _SERIAL, serial, started, deadline)
    (seq,) = _COUNT.unpack_from(page, _SEQ)
    _COUNT.pack_into(page, _SEQ, seq + 1)


def mark(page: bytearray | memoryview, order: int) -> None:
    """The worker: no run up to this number may begin any more."""
    _COUNT.pack_into(page, _MARK, order)


def renew(page: bytearray | memoryview) -> None:
    """The child has a new connection, with empty hands; a new manager counts from 1 again."""
    _COUNT.pack_into(page, _ORDER, 0)
    _COUNT.pack_into(page, _MARK, 0)


def marked(page: bytearray | memoryview) -> int:
    """How far runs were taken back."""
    return _COUNT.unpack_from(page, _MARK)[0]  # type: ignore[no-any-return]


def end(page: bytearray | memoryview) -> None:
    """The call in hand is over."""
    (seq,) = _COUNT.unpack_from(page, _SEQ)
    _COUNT.pack_into(page, _DONE, seq)


def read(page: bytearray | memoryview) -> Hand:
    """What the page says; read until it says the same twice, since the child goes on meanwhile."""
    before = _ALL.unpack_from(page)
    for _ in range(100):
        after = _ALL.unpack_from(page)
        if after == before:
            break
        before = after
    seq, done, serial, started, deadline, order = before
    name = _command(page) if serial >= LENT else ""
    return Hand(serial, done, started, deadline, seq != done, order, name)


def _command(page: bytearray | memoryview) -> str:
    (size,) = _NAME.unpack_from(page, _COMMAND)
    at = _COMMAND + _NAME.size
    return bytes(page[at : at + min(size, SIZE - at)]).decode(errors="replace")
