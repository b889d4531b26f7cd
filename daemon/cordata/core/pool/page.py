"""The state page that a child and its worker share: which call the child has in hand, and how long.

One writer, the child; it may be killed between any two stores, so `begin` writes what it says of
the call first and then, in one aligned store of 8 bytes, that the call has begun.

```
  0  seq       u64  calls begun        16  serial    u64  the manager's number of the last one
  8  done      u64  calls ended        24  started   f64  monotonic seconds
                                       32  deadline  f64  monotonic seconds; 0: none
```
Busy: seq != done. The order of bytes is the machine's own: both sides are on it.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

#: One page of memory; a `memoryview` of the mapped file is what the functions take.
SIZE = 4096
_ALL = Struct("@QQQdd")
_COUNT = Struct("@Q")
_CALL = Struct("@Qdd")
_SEQ, _DONE, _SERIAL = 0, 8, 16


class Hand(NamedTuple):
    """What a child has in its hands; of one that is not busy, what it had last."""

    serial: int
    #: Calls ended.
    done: int
    started: float
    deadline: float
    busy: bool


def begin(page: bytearray | memoryview, serial: int, started: float, deadline: float) -> None:
    """The child starts a call: from now on it counts as run."""
    _CALL.pack_into(page, _SERIAL, serial, started, deadline)
    (seq,) = _COUNT.unpack_from(page, _SEQ)
    _COUNT.pack_into(page, _SEQ, seq + 1)


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
    seq, done, serial, started, deadline = before
    return Hand(serial, done, started, deadline, seq != done)
