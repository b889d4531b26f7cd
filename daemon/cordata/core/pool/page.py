"""The state page that a child and its worker share: which call the child has in hand, and how long.

The child writes all but `mark`; it may be killed between any two stores, so `begin` writes what it
says of the call first and then, in one aligned store of 8 bytes, that the call has begun.

```
  0  seq       u64  calls begun        16  serial    u64  the manager's number of the last one
  8  done      u64  calls ended        24  started   f64  monotonic seconds
 40  order     u64  number of the last 32  deadline  f64  monotonic seconds; 0: none
                    run begun          48  mark      u64  the worker's: no run up to it may begin
 56  told      u64  calls ended that     64  failed    u64  of the others, those that failed
                    the manager knows   72  name      u16 bytes, then the command; of a call that
                                                      the manager does not know only
```
Busy: seq != done. The order of bytes is the machine's own: both sides are on it. A child that is
lent shares a page of the same kind with its client (loan.py), who looks at seq, done, order and
mark only; the rest of what there is to say of the client's calls is on the worker's page.

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
_ALL = Struct("@QQQddQQQQ")
_COUNT = Struct("@Q")
_NAME = Struct("@H")
#: In words of 8 bytes; the mark and the command in bytes.
_SEQ, _DONE, _SERIAL, _STARTED, _DEADLINE, _ORDER, _MARKED, _TOLD, _FAILED = range(9)
_MARK, _COMMAND = 48, 72


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
    #: Calls ended that the manager does not know of yet, and those of them that failed.
    untold: int = 0
    failed: int = 0


class Writer:
    """The child's side of a page. Whoever made the memory closes it, after this."""

    __slots__ = ("_bytes", "_name", "_seq", "_times", "_words")

    def __init__(self, page: memoryview) -> None:
        self._bytes = page
        # A store through such a view takes a third of the time that `pack_into` takes.
        self._words, self._times = page.cast("Q"), page.cast("d")
        #: Calls begun. Nobody else counts them.
        self._seq = self._words[_SEQ]
        self._name = ""

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._times.release()
        self._bytes.release()

    def begin(self, serial: int, started: float, deadline: float, order: int = 0) -> bool:
        """A call starts: from now on it counts as run. False: it was taken back."""
        words, times = self._words, self._times
        if 0 < order <= words[_MARKED]:
            return False
        words[_SERIAL], times[_STARTED], times[_DEADLINE] = serial, started, deadline
        before = self._seq
        if self.begin_order(order):
            return True
        words[_TOLD] += self._seq - before  # the manager counts it where it runs
        return False

    def begin_order(self, order: int) -> bool:
        """The same where the rest is said elsewhere: on the page of a loan."""
        words = self._words
        if 0 < order <= words[_MARKED]:
            return False
        words[_ORDER] = order
        self._seq += 1
        words[_SEQ] = self._seq
        if 0 < order <= words[_MARKED]:
            words[_DONE] = self._seq
            return False
        return True

    def begin_lent(self, serial: int, started: float, deadline: float, command: str) -> None:
        """A call of the child's client starts, and what the page says of orders stands as it was.

        The command is written when it is another than that of the last one.
        """
        words, times = self._words, self._times
        if command != self._name:
            data = command.encode()
            _NAME.pack_into(self._bytes, _COMMAND, len(data))
            at = _COMMAND + _NAME.size
            self._bytes[at : at + len(data)] = data
            self._name = command
        words[_SERIAL], times[_STARTED], times[_DEADLINE] = serial, started, deadline
        self._seq += 1
        words[_SEQ] = self._seq

    def end(self) -> None:
        """The call in hand is over, of which the manager knows."""
        words = self._words
        words[_TOLD] += 1  # first: one too few for a moment is better than one too many
        words[_DONE] = self._seq

    def end_lent(self, *, failed: bool = False) -> None:
        """The call in hand is over, and the manager does not know of it."""
        if failed:
            self._words[_FAILED] += 1
        self._words[_DONE] = self._seq

    def told(self) -> None:
        """The manager knows of all calls that ended."""
        self._words[_TOLD], self._words[_FAILED] = self._words[_DONE], 0

    def renew(self) -> None:
        """The child has a new connection, with empty hands; a new manager counts from 1 again."""
        self._words[_ORDER] = self._words[_MARKED] = 0
        self.told()


def mark(page: memoryview, order: int) -> None:
    """The other side: no run up to this number may begin any more."""
    _COUNT.pack_into(page, _MARK, order)


def marked(page: memoryview) -> int:
    """How far runs were taken back."""
    return _COUNT.unpack_from(page, _MARK)[0]  # type: ignore[no-any-return]


def read(page: bytearray | memoryview) -> Hand:
    """What the page says; read until it says the same twice, since the child goes on meanwhile."""
    before = _ALL.unpack_from(page)
    for _ in range(100):
        after = _ALL.unpack_from(page)
        if after == before:
            break
        before = after
    seq, done, serial, started, deadline, order, _, told, failed = before
    untold = max(0, done - told)
    failed = min(failed, untold)  # that of a call which is just ending stands there already
    name = _command(page) if serial >= LENT else ""
    return Hand(serial, done, started, deadline, seq != done, order, name, untold, failed)


def _command(page: bytearray | memoryview) -> str:
    (size,) = _NAME.unpack_from(page, _COMMAND)
    at = _COMMAND + _NAME.size
    return bytes(page[at : at + min(size, SIZE - at)]).decode(errors="replace")
