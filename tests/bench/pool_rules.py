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
from collections.abc import Mapping
from statistics import median

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

    def __init__(self, *, waiting: int = 0, sessions: int = 0, fair: bool = False) -> None:
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


def in_turns(houses: Mapping[str, House], count: int, rounds: int) -> dict[str, list[float]]:
    """Calls a second in each round of each; they take turns, so what disturbs meets them all."""
    gc.collect()
    gc.freeze()
    rates: dict[str, list[float]] = {name: [] for name in houses}
    for _ in range(rounds):
        for name, house in houses.items():
            started = time.perf_counter()
            house.calls(count)
            rates[name].append(count / (time.perf_counter() - started))
    gc.unfreeze()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    gc.set_threshold(50_000, 50, 50)
    houses = {
        "empty queue": House(),
        f"{args.waiting} waiting": House(waiting=args.waiting),
        f"{args.waiting} waiting, fair": House(waiting=args.waiting, fair=True),
        "one session": House(sessions=1),
        f"{args.sessions} sessions": House(sessions=args.sessions),
    }
    rates = in_turns(houses, args.calls, args.rounds)
    first = rates["empty queue"]
    print(f"{'':34} calls/s   of empty")
    for name, found in rates.items():
        share = median(one / other for one, other in zip(found, first, strict=True))
        print(f"{name:34} {median(found):7.0f}   {100 * share:5.0f} %")
    del houses
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    house = House(waiting=args.waiting)
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(house.pool.waiting["default"]) == args.waiting
    each = size / args.waiting
    print(f"{args.waiting} waiting calls of 100 bytes: {size / 1e6:.0f} MB, {each:.0f} B each")


if __name__ == "__main__":
    main()
