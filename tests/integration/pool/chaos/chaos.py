"""Many calls while what runs them is killed at random, and the verdict on every one of them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.pool.chaos import guests
from tests.integration.pool.chaos.callers import Caller, Progress, call_all
from tests.integration.pool.chaos.guests import Guests
from tests.integration.pool.chaos.house import SETTINGS, House, house
from tests.integration.pool.chaos.orders import ALLOWED, Order, planned
from tests.integration.pool.chaos.served import Served

from cordata.errors import (
    CallCancelled,
    ChildCrashed,
    DeadlineExceeded,
    PoolRestarted,
    PoolUnavailable,
)
from cordata.pool import SyncClient
from cordata.pool.shared.protocol import Affinity

CLIENTS = 50
#: Of the one client that has the pool to itself: calls at the same time, and how long they sleep.
LANES, SHORT_S = 24, 0.0005
#: On top of a call's deadline and of how late this process itself ran.
SLACK_S = 2.0
#: Else the run proves little.
MUST_DIE = ("child", "worker", "client")
#: A worker with commands of its own; its sessions' other calls run elsewhere.
_NAMED = '[pool.streams]\nworkers = ["0"]\ncommands = ["pages"]\n'
#: A kill is followed by another one at once so often: starts are a good time to die, too.
_AGAIN = 0.35


@dataclass
class Killer:
    """Kills one process each time some calls have ended, so a slow machine has no more of it."""

    house: House | Served
    guests: Guests | None
    progress: Progress
    rng: random.Random
    #: That end between two kills, on average.
    calls: int
    #: No kills after so long.
    seconds: float

    def run(self) -> None:
        end = time.monotonic() + self.seconds
        kinds = {**self.house.kinds, **(guests.KINDS if self.guests else {})}
        # Each kind at least once, and soon, those that have to be first.
        first = [kind for kind in self.rng.sample(MUST_DIE, len(MUST_DIE)) if kind in kinds]
        first = [kind for kind in kinds if kind not in first] + first
        while not self.progress.over.is_set() and time.monotonic() < end:
            if self.rng.random() < _AGAIN:
                time.sleep(self.rng.choice((0.0, 0.02, 0.1, 0.5)) * self.rng.random())
            else:
                self._wait(self.rng.randrange(1, 20 if first else 2 * self.calls), end)
            kind = first.pop() if first else self.rng.choices([*kinds], [*kinds.values()])[0]
            if self.guests and kind in guests.KINDS:
                self.house.kills[kind] += self.guests.kill(kind, self.rng)
            else:
                self.house.kill(kind, self.rng)

    def _wait(self, calls: int, end: float) -> None:
        progress = self.progress
        with progress.changed:
            until = progress.ended + calls
            progress.changed.wait_for(
                lambda: progress.ended >= until or progress.over.is_set(),
                max(0.0, end - time.monotonic()),
            )


def chaos(
    directory: Path,
    *,
    seed: int,
    calls: int,
    calls_per_kill: int,
    workers: int,
    seconds: float,
    place: Callable[..., AbstractContextManager[House | Served]] = house,
    alone: bool = False,
) -> str:
    """Run it; gives a line of figures. Raises: AssertionError with all that went wrong.

    `seconds`: killing ends then, whatever was done by then; the calls go on to their end.
    `place`: who starts again what was killed. `alone`: one client has the pool to itself.
    """
    rng = random.Random(seed)
    settings = SETTINGS + ("children = 2\n" if seed & 4 else "")
    settings += _NAMED if seed & 2 and not alone else ""
    with place(directory, workers=workers, settings=settings) as found, ExitStack() as open_:
        path = found.path
        with SyncClient(path, timeout=60.0) as client:
            callers = _one(client, rng, calls) if alone else _many(client, rng, calls)
        progress, visitors = Progress(), None
        if not alone:
            visitors = open_.enter_context(Guests(path, directory, seed, found.environment))
        killer = Killer(found, visitors, progress, random.Random(seed + 1), calls_per_kill, seconds)
        killing = threading.Thread(target=killer.run, daemon=True)
        began = time.monotonic()
        killing.start()
        call_all(path, callers, progress)
        killing.join()
        if visitors is not None:
            visitors.finish()
        took_s = time.monotonic() - began
        faults = [
            *judge_calls(callers, progress, found.evidence),
            *([] if visitors is None else judge_guests(visitors, progress, found.evidence)),
            *judge_pool(found, callers),
        ]
        die = [kind for kind in MUST_DIE if kind != "client" or not alone]
        faults += [f"no {kind} died" for kind in die if not found.kills[kind]]
        told = tell(callers, found, progress, took_s)
        log = found.log()
        if "Traceback" in log:
            faults.append("a traceback: " + log[log.index("Traceback") :][:3000])
    assert not faults, f"seed {seed}: {told}\n" + "\n".join(faults[:40])
    return told


def _many(client: SyncClient, rng: random.Random, calls: int) -> list[Caller]:
    """Clients that share the pool, every other one sync."""
    return [
        Caller(
            client.sessions.create(f"s-{n}", affinity=_affinity(n)).id,
            planned(rng, calls // CLIENTS, prefix=str(n)),
            sync=n % 2 == 0,
        )
        for n in range(CLIENTS)
    ]


def _one(client: SyncClient, rng: random.Random, calls: int) -> list[Caller]:
    session = client.sessions.create("s-0").id
    orders = planned(rng, calls, prefix="0", sleep_s=SHORT_S)
    return [Caller(session, orders, sync=False, lanes=LANES)]


def _affinity(number: int) -> Affinity:
    """A third of the sessions waits for its own worker, which may be away."""
    return "strict_queue" if number % 3 == 0 else "hint"


def tell(callers: list[Caller], found: House | Served, progress: Progress, took_s: float) -> str:
    """The figures."""
    orders = [order for caller in callers for order in caller.orders]
    ends = Counter("ok" if order.ok else type(order.outcome).__name__ for order in orders)
    longest = max(order.took_s for order in orders)
    return (
        f"{len(orders)} calls in {took_s:.0f} s; {dict(found.kills)};"
        f" {dict(ends.most_common())}; longest {longest:.1f} s;"
        f" this process was {progress.late_s:.2f} s late"
    )


def judge_calls(callers: list[Caller], progress: Progress, evidence: Path) -> list[str]:
    """What is wrong with the calls, by what the clients and the evidence say."""
    runs = Counter(evidence.read_text().split())
    faults = []
    for caller in callers:
        for order in caller.orders:
            fault = _fault(order, runs[order.id], progress.late_s)
            if fault:
                client = "sync" if caller.sync else "async"
                faults.append(
                    f"{order.kind} {order.id} ({client}, {runs[order.id]} runs,"
                    f" {order.took_s:.2f} s): {fault}"
                )
    return faults


def judge_guests(visitors: Guests, progress: Progress, evidence: Path) -> list[str]:
    """The same of those who may have been killed, or stood still."""
    runs = Counter(evidence.read_text().split())
    faults, ended = [], 0
    for number, orders in visitors.ended():
        for order in orders:
            ran = runs[order.id]
            if order.took_s < 0:  # its client was killed, or never came to it
                fault = "it ran twice" if ran > 1 and not order.idempotent else ""
            else:
                ended += 1
                fault = _fault(order, ran, progress.late_s + visitors.paused_s[number])
            if fault:
                faults.append(
                    f"{order.kind} {order.id} ({ran} runs, {order.took_s:.2f} s): {fault}"
                )
    return faults if ended else [*faults, "no guest got anything done"]


def _fault(order: Order, runs: int, late_s: float) -> str:
    outcome = order.outcome
    if order.took_s < 0:
        return "it never ended"
    if order.took_s > order.timeout_s + SLACK_S + late_s:
        return f"it ended too late, with {outcome!r}"
    if not order.ok and not isinstance(outcome, ALLOWED[order.kind]):
        return f"it ended with {outcome!r}"
    if order.kind in ("hang", "fail") and order.ok:
        return "it gave a result"
    numbers = [[order.id, number] for number in range(20)]
    wanted = numbers if order.kind == "pages" and order.ok else numbers[: len(order.parts)]
    if order.parts != wanted:
        return f"other parts came: {order.parts}"
    if order.kind in ("count", "note"):
        return ""
    if order.ok and order.command.startswith("mark") and outcome != order.payload:
        return f"another's result: {outcome!r:.200}"
    if runs > 1 and not order.idempotent:
        return "it ran twice"
    if order.ok and not runs and order.kind != "leave":
        return "a result without a run"
    never = isinstance(outcome, DeadlineExceeded) and not outcome.ran
    never |= isinstance(outcome, PoolUnavailable)
    if runs and never:
        return f"it ran, and {outcome!r} says that it did not"
    return ""


def judge_pool(found: House | Served, callers: list[Caller]) -> list[str]:
    """What is wrong with sessions, registries and processes when all is over."""
    runs = Counter(found.evidence.read_text().split())
    faults = []
    status = found.until_calm()
    for worker in status["workers"]:
        if any(child["spare"] for child in worker["children"]):
            faults.append(f"worker {worker['worker']} has {worker['children']}")
    with SyncClient(found.path, timeout=60.0) as client:
        sessions = client.list_sessions(limit=1000)["sessions"]
        if len(sessions) != len(callers):
            faults.append(f"{len(sessions)} sessions of {len(callers)} callers")
        noted = client.globals.get()
        for caller in callers:
            session = client.sessions.get(caller.session)
            faults += _faults_of_session(caller, session.data, session.counters, runs)
            faults += [
                f"the global {order.id} is lost"
                for order in caller.orders
                if order.kind == "note" and order.ok and noted.get(order.id) != order.id
            ]
            client.sessions.delete(caller.session)
        if left := client.list_sessions()["sessions"]:
            faults.append(f"not empty: {left}")
    found.stop()
    if left_files := [file for file in found.path.rglob("*") if file.is_socket()]:
        faults.append(f"files are left: {left_files}")
    processes = found.left()
    if processes:
        faults.append(f"processes are left: {processes}")
    return faults


def _faults_of_session(caller: Caller, data: Any, counters: Any, runs: Counter[str]) -> list[str]:
    faults = []
    data = {key: value for key, value in data.items() if key != "blob"}
    if sum(data.values()) != counters.get("runs", 0):
        faults.append(f"session {caller.session}: {sum(data.values())} kept, {counters}")
    asked = [order for order in caller.orders if order.kind == "count"]
    good = sum(order.ok for order in asked)
    if not good <= counters.get("asks", 0) <= len(asked):
        faults.append(f"session {caller.session}: {good} of {len(asked)} counted, {counters}")
    for order in caller.orders:
        kept = data.get(order.id, 0)
        if order.kind in ("count", "note"):
            continue
        if not order.with_session or order.kind in ("hang", "fail"):
            most, least = 0, 0
        elif order.idempotent:
            most, least = runs[order.id], int(order.ok)
        elif order.ok:
            most, least = 1, 0 if order.kind == "leave" else 1
        else:
            # It may have died between its commit and its answer, or the caller gave up.
            lost = (ChildCrashed, PoolRestarted, CallCancelled, DeadlineExceeded)
            most, least = int(isinstance(order.outcome, lost)), 0
        if not least <= kept <= most:
            faults.append(
                f"{order.kind} {order.id} is {kept} times in its session,"
                f" after {order.outcome!r:.100} and {runs[order.id]} runs"
            )
    return faults
