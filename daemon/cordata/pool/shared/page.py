"""Two pages of shared memory: the status of a child, and which calls of a connection have begun.

The child writes its status page (`W.G.status`), its worker only `drained` and `paused`. All clients
map it read-only. The child may be killed between any two stores, so `begin` first writes the fields
of the call and then, in one aligned store of 8 bytes, that the call runs.

```
  0  drained   u64  worker: takes no calls     8  paused    u64  worker: begin no call
 16  begun     u64  calls begun               24  ended     u64  runs: begun != ended
 32  failed    u64                            40  waiting   u64  read but not begun
 48  client    u64  of the call that runs:    56  id        u64    the client's own
 64  started   f64    monotonic seconds       72  deadline  f64
 80  command   u16 bytes, then the text
```
A child is drained before it is told to leave; clients see its page only once it is warm.

Before a worker kills a child because of a call, it sets `paused`, waits for SETTLE_S and reads the
page again: if the same call still runs, no other one can begin before the signal arrives.

The page of a connection is a memory file that the client makes and sends with its hello.
```
  0  begun      u64  child: number of the last call of this connection that it began
  8  revoked    u64  client: no call up to this number may begin any more
```
Revoking: the client writes `revoked`, waits for longer than a store takes to be seen by
another core (SETTLE_S), then reads `begun`. The child writes `begun` and reads `revoked` after
it. So at least one of the two sees what the other wrote: a call that the client reads as not begun
will not begin. If both see it, the client reads the call as begun, and the child answers `NotRun`
instead of running it. After the end of the connection `begun` alone says which calls had begun.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from cordata.pool.shared.protocol import call_id

SIZE = 4096
#: Seconds between setting `paused` or `revoked` and reading what has begun.
SETTLE_S = 0.001

_ALL = Struct("@QQQQQQQQdd")
_COMMAND = Struct("@H")
#: Offsets, in words of 8 bytes.
_DRAINED, _PAUSED, _BEGUN, _ENDED, _FAILED, _WAITING = range(6)
_CLIENT, _ID, _STARTED, _DEADLINE = range(6, 10)
_COMMAND_AT = 80
#: A process that reads a mapped file that has shrunk gets SIGBUS.
_SEALS = fcntl.F_SEAL_SHRINK


class Status(NamedTuple):
    """A status page as it was read. If no call runs, the fields of a call are those of the last."""

    drained: int
    paused: int
    begun: int
    ended: int
    failed: int
    waiting: int
    client: int
    id: int
    started: float
    deadline: float
    command: str

    @property
    def running(self) -> bool:
        """Whether a call runs."""
        return self.begun != self.ended

    @property
    def call_id(self) -> str:
        """CALL_ID of the running call; "": none."""
        return call_id(self.client, self.id) if self.running else ""


class StatusWriter:
    """The child's side of its status page."""

    __slots__ = ("_begun", "_bytes", "_command", "_failed", "_times", "_words")

    def __init__(self, page: memoryview) -> None:
        self._bytes = page
        # A store through a cast view takes a third of the time of `pack_into`.
        self._words, self._times = page.cast("Q"), page.cast("d")
        self._begun = self._words[_BEGUN]
        self._failed = self._words[_FAILED]
        self._command = ""

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._times.release()
        self._bytes.release()

    @property
    def paused(self) -> bool:
        """Whether no call may begin, because the worker may be about to kill this process."""
        return bool(self._words[_PAUSED])

    def set_waiting(self, count: int) -> None:
        """Write the number of calls that were read but not begun."""
        self._words[_WAITING] = count

    def begin(self, client: int, id: int, command: str, started: float, deadline: float) -> None:
        """Write that a call starts."""
        words, times = self._words, self._times
        if command != self._command:
            data = command.encode()[: SIZE - _COMMAND_AT - _COMMAND.size]
            _COMMAND.pack_into(self._bytes, _COMMAND_AT, len(data))
            at = _COMMAND_AT + _COMMAND.size
            self._bytes[at : at + len(data)] = data
            self._command = command
        words[_CLIENT], words[_ID] = client, id
        times[_STARTED], times[_DEADLINE] = started, deadline
        self._begun += 1
        words[_BEGUN] = self._begun

    def end(self, *, failed: bool = False) -> None:
        """Write that the call is over."""
        if failed:
            self._failed += 1
            self._words[_FAILED] = self._failed
        self._words[_ENDED] = self._begun


class StatusReader:
    """The status page for clients and the worker: properties for the scheduler, `read` for all."""

    __slots__ = ("_bytes", "_times", "_words")

    def __init__(self, page: mmap.mmap | memoryview) -> None:
        self._bytes = memoryview(page)
        self._words, self._times = self._bytes.cast("Q"), self._bytes.cast("d")

    @staticmethod
    def open(path: Path) -> StatusReader:
        """Map the page at `path`; `close` unmaps it. Raises: OSError."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return StatusReader(mmap.mmap(file, SIZE, prot=mmap.PROT_READ))
        except ValueError as error:  # an empty file
            raise OSError(f"not a status page: {error}") from None
        finally:
            os.close(file)

    def close(self) -> None:
        """Release the memory: a page without other users is unmapped."""
        self._words.release()
        self._times.release()
        self._bytes.release()

    @property
    def takes_calls(self) -> bool:
        """Whether new calls may be sent."""
        return not self._words[_DRAINED]

    @property
    def in_flight(self) -> int:
        """Calls of all clients that the child has read and not ended; 0: it is free."""
        words = self._words
        return words[_WAITING] + (words[_BEGUN] != words[_ENDED])

    @property
    def busy_since(self) -> float:
        """Monotonic time at which the running call began; 0.0: none runs."""
        words = self._words
        return self._times[_STARTED] if words[_BEGUN] != words[_ENDED] else 0.0

    def read(self) -> Status:
        """The whole page; read until two reads agree, since the child may write meanwhile."""
        page = self._bytes
        before = _ALL.unpack_from(page)
        command = _command(page)
        for _ in range(100):
            after = _ALL.unpack_from(page)
            if after == before:
                break
            before, command = after, _command(page)
        return Status._make((*before, command))


def set_drained(page: memoryview | mmap.mmap, drained: bool) -> None:
    """Worker side: set whether the child gets no more calls."""
    page[8 * _DRAINED : 8 * _DRAINED + 8] = int(drained).to_bytes(8, "little")


def set_paused(page: memoryview | mmap.mmap, paused: bool) -> None:
    """Worker side: set whether no call may begin."""
    page[8 * _PAUSED : 8 * _PAUSED + 8] = int(paused).to_bytes(8, "little")


class ConnectionPage:
    """The page of a connection, for both sides."""

    __slots__ = ("_map", "_words")

    def __init__(self, file: int) -> None:
        """`file` stays the caller's. Raises: OSError, also for a file that is too short."""
        if os.fstat(file).st_size < SIZE or not fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS:
            raise OSError("not the page of a connection: too short, or its size is not sealed")
        self._map = mmap.mmap(file, SIZE)
        self._words = memoryview(self._map).cast("Q")

    @staticmethod
    def create() -> int:
        """Client side: a new memory file for a page; the caller closes it."""
        file = os.memfd_create("cordata-connection", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, SIZE)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        return file

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._map.close()

    def may_begin(self, number: int) -> bool:
        """Child side: mark this call as begun; False: it was revoked and must not run."""
        words = self._words
        if number <= words[1]:
            return False
        words[0] = number
        return number > words[1]

    def revoke(self, number: int) -> None:
        """Client side: no call up to this number may begin any more. Wait SETTLE_S, then read
        `begun`.
        """
        words = self._words
        words[1] = max(words[1], number)  # never revoke less than before

    @property
    def begun(self) -> int:
        """Number of the last call that began; those after it have not."""
        return self._words[0]


def _command(page: memoryview) -> str:
    (size,) = _COMMAND.unpack_from(page, _COMMAND_AT)
    at = _COMMAND_AT + _COMMAND.size
    return bytes(page[at : at + min(size, SIZE - at)]).decode(errors="replace")
