"""What the pool's rules cost, without a socket: calls a second with an empty and with a long queue.

Each call is decoded from its frame, placed, handed over, answered and forgotten, with a deadline.
`--waiting` calls stand in the queue all the while; each of `--sessions` sessions is there to be
looked up by every call.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable

from msgspec import Raw, msgpack

from cordata.core.pool.call import Call
from cordata.core.pool.codec import encode, from_client
from cordata.core.pool.dispatch import Dispatcher
from cordata.core.pool.limits import Failure, PoolLimits, Rules
from cordata.core.pool.message import CallFrame
from cordata.core.pool.order import Run
from cordata.core.pool.registry import Child
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import Session, SessionLimits
from cordata.core.pool.state import State

PAYLOAD = Raw(msgpack.encode(b"x" * 100))


class Frames:
    """Effects that encode what a link would send."""

    def run(self, child: Child, call: Call, session: Session | None) -> None:
        encode(Run(id=call.id, n=call.serial, command=call.command, payload=call.payload))

    def fail(self, call: Call, failure: Failure) -> None:
        raise AssertionError(failure)

    def cancel(self, child: Child, call: Call) -> None: ...

    def skip(self, child: Child, call: Call) -> None: ...

    def take_back(self, child: Child) -> None: ...

    def kill(self, child: Child, call: Call, why: str) -> None: ...

    def recall(self, child: Child) -> None: ...

    def retire(self, child: Child) -> None: ...
    def hang_up(self, child: Child) -> None: ...

    def moved(self, child: Child, before: State, to: State) -> None: ...

    def note(self, event: str, call: Call, **fields: object) -> None: ...


class House:
    """A dispatcher with four children, none of which ever rests."""

    def __init__(self, *, waiting: int, sessions: int, fair: bool) -> None:
        limits = PoolLimits(max_waiting=10**9, max_waiting_bytes=10**12, fair=fair)
        limit = SessionLimits(max_sessions=10**9, session_ttl_s=1e6)
        self.sessions = SessionTable(limit, new_id=str, to_wall_us=lambda at: round(at * 1e6))
        self.pool = Dispatcher({"default": limits}, Rules(), self.sessions, Frames())
        self.children = []
        for n in range(4):
            self.pool.worker_joined(str(n), object(), "", ["echo"], 0.0)
            child = self.pool.child_joined(str(n), n, 1, object(), 0.0, warm=True)
            self.children.append(child)
        for n in range(sessions):
            self.sessions.create(f"{n:032x}", 0.0, data={"k": PAYLOAD})
        self.sessions.changes.clear()
        self.session = f"{sessions // 2:032x}" if sessions else ""
        frame = CallFrame(id=1, command="echo", payload=PAYLOAD, timeout_s=60.0)
        self.plain = encode(frame)
        frame.session = self.session
        self.frame = encode(frame)
        for n in range(waiting + 4):
            self.offer(self.plain, 0.0, n % 50)

    def offer(self, frame: bytes, now: float, source: int) -> None:
        copy = bytes(bytearray(frame))  # as the splitter makes one
        message = from_client.decode(copy)
        assert isinstance(message, CallFrame)
        call = self.pool.call_of(message, client=self, source=source, size_bytes=len(copy), now=now)
        self.pool.offer(call, now)

    def calls(self, count: int) -> None:
        now = 1.0
        for n in range(count):
            now += 0.00005
            self.pool.answered(self.children[n % 4], now, ok=True)
            self.offer(self.frame, now, n % 50)
            if n % 64 == 0:
                self.pool.expire(now)
                self.sessions.touched.clear()


def rate(make: Callable[[], House], count: int, rounds: int) -> float:
    """The best of several rounds, as what disturbs only ever slows down."""
    best = 0.0
    house = make()
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        started = time.perf_counter()
        house.calls(count)
        best = max(best, count / (time.perf_counter() - started))
    gc.unfreeze()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    gc.set_threshold(50_000, 50, 50)

    def measure(**what: int | bool) -> float:
        wanted = {"waiting": 0, "sessions": 0, "fair": False, **what}
        return rate(lambda: House(**wanted), args.calls, args.rounds)  # type: ignore[arg-type]

    empty = measure()
    print(f"{'':34} calls/s   of empty")
    for name, found in (
        ("empty queue", empty),
        (f"{args.waiting} waiting", measure(waiting=args.waiting)),
        (f"{args.waiting} waiting, fair", measure(waiting=args.waiting, fair=True)),
        ("one session", measure(sessions=1)),
        (f"{args.sessions} sessions", measure(sessions=args.sessions)),
    ):
        print(f"{name:34} {found:7.0f}   {100 * found / empty:5.0f} %")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    house = House(waiting=args.waiting, sessions=0, fair=False)
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(house.pool.waiting["default"]) == args.waiting
    each = size / args.waiting
    print(f"{args.waiting} waiting calls of 100 bytes: {size / 1e6:.0f} MB, {each:.0f} B each")


if __name__ == "__main__":
    main()
