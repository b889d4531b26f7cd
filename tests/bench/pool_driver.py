"""A client of the pool that costs little itself, and what its calls cost the manager."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from msgspec import Raw, msgpack
from tests.bench.pool_work import PAYLOAD, PROCESSES
from tests.bench.servers import cpu_s
from tests.integration.pool.chaos.house import House, house
from tests.integration.pool.peer import Peer

from cordata.core.frame import Splitter
from cordata.core.pool.codec import encode, to_client
from cordata.core.pool.message import CallFrame, Message, Reply, Result, SessionOp

#: Under way while a rate is measured.
OUTSTANDING = 64
_TIMEOUT_S = 900.0
_AT_ONCE = 500
_PAYLOAD = Raw(msgpack.encode(PAYLOAD))


@dataclass(frozen=True, slots=True)
class Rate:
    """What was measured for a while."""

    calls_per_s: float
    #: The manager's processor time, in microseconds a call.
    manager_us: float


def typical(rounds: Sequence[Rate]) -> Rate:
    """The median of each figure: on a machine that others use, too, the best is luck."""
    return Rate(median(one.calls_per_s for one in rounds), median(one.manager_us for one in rounds))


def compared(what: str, rounds: Sequence[Rate], before: Sequence[Rate], *, least: float) -> None:
    """Judge the rates against those of the same rounds; the times are for who looks closer."""
    pairs = list(zip(rounds, before, strict=True))
    share = median(one.calls_per_s / other.calls_per_s for one, other in pairs)
    verdict(f"{what}: of the rate", share, least)
    more = median(one.manager_us / other.manager_us for one, other in pairs)
    print(f"      {what}: manager's time a call{more:9.2f}")


class Driver:
    """One connection, on which so many calls are always under way."""

    def __init__(self, path: Path, *, sessions: Sequence[str] = ("",)) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        Peer(self._socket).hello("client", pid=os.getpid())
        self._splitter = Splitter(1 << 30)
        self._ids = itertools.count(1)
        self._sessions = itertools.cycle(sessions)
        self.under_way = 0

    def ask(self, messages: Sequence[Message]) -> None:
        """Send them, and wait for as many replies."""
        for at in range(0, len(messages), _AT_ONCE):
            part = messages[at : at + _AT_ONCE]
            self._socket.sendall(b"".join(map(encode, part)))
            left = len(part)
            while left:
                left -= self._read(Reply)

    def fill(self, count: int) -> None:
        """Until so many calls are under way."""
        while self.under_way < count:
            self._call(min(_AT_ONCE, count - self.under_way))
            if self.under_way < count:
                self._read_ready()

    def measure(self, seconds: float, manager: int) -> Rate:
        """A call for each result, for so long."""
        began, used, results = time.perf_counter(), cpu_s(manager), 0
        now = began
        while now < began + seconds:
            count = self._read(Result)
            self.under_way -= count
            results += count
            self._call(count)
            now = time.perf_counter()
        return Rate(results / (now - began), (cpu_s(manager) - used) / results * 1e6)

    def drain(self) -> None:
        """Until no call is under way."""
        while self.under_way:
            self.under_way -= self._read(Result)

    def close(self) -> None:
        self._socket.close()

    def _call(self, count: int) -> None:
        frames = [
            encode(
                CallFrame(
                    id=next(self._ids),
                    command="echo",
                    payload=_PAYLOAD,
                    session=next(self._sessions),
                    timeout_s=_TIMEOUT_S,
                )
            )
            for _ in range(count)
        ]
        self._socket.sendall(b"".join(frames))
        self.under_way += count

    def _read_ready(self) -> None:
        """The results that are there, if any: nobody has to wait to be read."""
        self._socket.settimeout(0.0)
        try:
            self.under_way -= self._read(Result)
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(None)

    def _read(self, kind: type[Message]) -> int:
        """How many such messages came. Raises: AssertionError for any other one."""
        data = self._socket.recv(1 << 18)
        assert data, "the manager closed the connection"
        count = 0
        for frame in self._splitter.feed(data):
            assert isinstance(frame, bytes)
            message = to_client.decode(frame)
            assert isinstance(message, kind), message
            count += 1
        return count


def sessions_of(count: int) -> list[str]:
    """Their ids."""
    return [f"{number:032x}" for number in range(count)]


def creating(ids: Sequence[str]) -> list[Message]:
    """The frames that make them, each with 100 bytes, as many at each worker."""
    return [
        SessionOp(n, "create", id, set={"k": _PAYLOAD}, wk=str(n % PROCESSES))
        for n, id in enumerate(ids)
    ]


@contextmanager
def measured(directory: Path, settings: str) -> Iterator[House]:
    """A pool of the measured size, warm."""
    with house(
        directory, workers=PROCESSES, app="tests.bench.pool_app:app", settings=settings
    ) as found:
        driver = Driver(found.manager.path)
        driver.fill(OUTSTANDING)
        driver.measure(0.5, found.manager.process.pid)
        driver.close()
        yield found


def verdict(what: str, found: float, wanted: float, *, most: bool = False) -> bool:
    """What was promised, beside what was found."""
    good = found <= wanted if most else found >= wanted
    sign = "<=" if most else ">="
    print(f"{'pass' if good else 'FAIL'}  {what:40}{found:8.2f}  ({sign} {wanted})")
    return good
