"""Which worker has which child, found both ways at once, and in which state each child is."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple

from cordata.core.pool.call import Call
from cordata.core.pool.state import (
    GONE,
    READY,
    RESTARTING,
    STARTING,
    TERMINATING,
    TRANSITIONS,
    State,
)

#: (pid, start time in clock ticks): one process, for ever.
Fingerprint = tuple[int, int]
#: A command stays known for so long after the last worker that knew it has left: the worker may
#: only be restarting.
_RESTART_S = 60.0


class Holding(NamedTuple):
    """A call in a child's hands that this manager did not give it."""

    serial: int
    command: str
    #: When it began, its deadline, and when the worker told of it.
    began: float
    deadline: float
    told: float


class Child:
    """One process that runs calls, one at a time."""

    __slots__ = (
        *("able", "ahead", "asked", "call", "calls", "conn", "copies", "copies_bytes", "cut"),
        *("due", "globals_version", "holds", "killed", "load_us", "loan", "lost", "order", "pid"),
        *("pool", "retire", "rss_bytes", "since", "spare", "stale", "start", "state", "stuck"),
        *("took_at", "worker"),
    )

    def __init__(
        self, worker: str, pid: int, start: int, *, spare: bool, now: float, pool: str = "default"
    ) -> None:
        self.worker = worker
        self.pool = pool
        self.pid = pid
        self.start = start
        #: It warms up beside the one that it will replace.
        self.spare = spare
        self.state = GONE
        self.since = now
        #: What it has in hand; also one whose caller was answered already.
        self.call: Call | None = None
        #: When it took that in hand, as far as one can know here.
        self.took_at = now
        #: What lies at it behind that, in order; none when nothing is in hand.
        self.ahead: deque[Call] = deque()
        #: How long all of these are expected to run.
        self.load_us = 0.0
        #: The number of the last run that was sent.
        self.order = 0
        #: Up to which number its worker was asked to take back, and when.
        self.asked = (0, 0.0)
        #: It is to be replaced, so nothing is sent ahead any more.
        self.due = False
        #: Calls that it ended.
        self.calls = 0
        #: Resident memory when its worker measured it last; 0: it has not.
        self.rss_bytes = 0
        #: Its connection; None: it has none yet, or no more.
        self.conn: Any = None
        #: Its connection ended; its worker has not yet said how it died.
        self.lost = False
        #: Not by itself: it may still begin what had been sent.
        self.cut = False
        #: We asked for its end, so its death accuses no command.
        self.killed = False
        #: It was replaced and goes when its hands are empty.
        self.retire = False
        #: It can be lent.
        self.able = False
        #: To which client it is lent; None: to none.
        self.loan: Any = None
        #: Of its client's calls one that takes long, as its worker told last.
        self.holds: Holding | None = None
        #: Lent, and so long in a call of its client that nothing is sent to it.
        self.stuck = False
        #: Version of each session that it keeps, the longest unused first; their bytes together.
        self.copies: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self.copies_bytes = 0
        #: Sessions of which it may keep a copy that is no good any more.
        self.stale: list[str] = []
        self.globals_version = -1

    def connected(self, conn: Any) -> None:
        """It said hello, and keeps nothing of what it was told before."""
        self.conn, self.lost, self.killed = conn, False, False
        self.copies.clear()
        self.stale.clear()
        self.copies_bytes, self.globals_version = 0, -1
        self.due, self.cut = False, False
        self.loan, self.holds, self.stuck = None, None, False

    @property
    def fingerprint(self) -> Fingerprint:
        """Pid and start time."""
        return (self.pid, self.start)

    def held(self) -> list[Call]:
        """What it has in hand and what lies ahead, in order."""
        return [] if self.call is None else [self.call, *self.ahead]


class Slot:
    """One worker: its connection, its child, the child's replacement."""

    __slots__ = (
        *("child", "children", "commands", "conn", "draining"),
        *("inv", "pool", "spare", "start_error", "worker"),
    )

    def __init__(self, worker: str, pool: str) -> None:
        self.worker = worker
        self.pool = pool
        self.inv = ""
        self.conn: Any = None
        #: Who gets the calls; also a dead one, until the next starts.
        self.child: Child | None = None
        self.spare: Child | None = None
        #: All processes of this worker: also those that were replaced and are not gone.
        self.children: dict[Fingerprint, Child] = {}
        self.draining = False
        #: Why its last child was not started, or ended before it was warm; "": one is warm since.
        self.start_error = ""
        self.commands: frozenset[str] = frozenset()


Observer = Callable[[Child, State, State], None]


class Registry:
    """Workers and children. Every change of a state goes through `move`."""

    def __init__(self, pool_of: Callable[[str], str], observer: Observer) -> None:
        self._pool_of = pool_of
        self._observer = observer
        self.by_worker: dict[str, Slot] = {}
        self.by_pid: dict[Fingerprint, Child] = {}
        #: By pool, who is free; the one that became free last is taken first, its caches are warm.
        self.idle: dict[str, dict[Child, None]] = {}
        #: By pool, busy ones to which calls may perhaps be sent ahead, in turns.
        self.roomy: defaultdict[str, OrderedDict[Child, None]] = defaultdict(OrderedDict)
        #: How often each step was taken.
        self.counts: Counter[tuple[State, State]] = Counter()
        #: By pool and command, the workers that know it.
        self._known: dict[str, Counter[str]] = {}
        self._slots: Counter[str] = Counter()
        #: By pool and command, when the last worker that knew it left.
        self._left: dict[tuple[str, str], float] = {}

    def slot(self, worker: str) -> Slot:
        """The worker's slot, made when it is not known."""
        found = self.by_worker.get(worker)
        if found is None:
            found = self.by_worker[worker] = Slot(worker, self._pool_of(worker))
        return found

    def learn(self, slot: Slot, commands: Iterable[str]) -> None:
        """What the worker's children can run, as its hello or that of its child says."""
        known = self._known.setdefault(slot.pool, Counter())
        if slot.commands:
            self._slots[slot.pool] -= 1
            known.subtract(slot.commands)
        slot.commands = frozenset(commands)
        if slot.commands:
            self._slots[slot.pool] += 1
            known.update(slot.commands)
        self._known[slot.pool] = +known

    def unknown(self, pool: str, command: str, now: float = inf) -> bool:
        """Whether the pool has workers, and none of them knows the command, or did lately."""
        if self._slots[pool] <= 0 or self._known[pool][command]:
            return False
        return now - self._left.get((pool, command), -inf) > _RESTART_S

    def partly_known(self, pool: str, command: str) -> bool:
        """Whether some worker of the pool does not know it, as during a rolling upgrade."""
        slots = self._slots[pool]
        return slots > 0 and self._known[pool][command] < slots

    def knows(self, worker: str, command: str) -> bool:
        """Whether the worker's child can run it."""
        slot = self.by_worker.get(worker)
        return slot is None or not slot.commands or command in slot.commands

    def known(self, pool: str) -> tuple[str, ...]:
        """The commands of the pool's workers, in order."""
        return tuple(sorted(self._known.get(pool, ())))

    def join(self, worker: str, pid: int, start: int, *, spare: bool, now: float) -> Child:
        """The row of a process that just started, or that is heard of for the first time."""
        slot = self.slot(worker)
        child = Child(worker, pid, start, spare=spare, now=now, pool=slot.pool)
        former = slot.spare if spare else slot.child
        if former is not None and former.state is RESTARTING:
            # The slot goes on with another process: restarting -> starting is its step.
            self._forget(former)
            child.state = RESTARTING
        self.by_pid[child.fingerprint] = slot.children[child.fingerprint] = child
        if spare:
            slot.spare = child
        else:
            slot.child = child
        self.move(child, STARTING, now)
        return child

    def move(self, child: Child, to: State, now: float) -> None:
        """Take one step. Raises: ValueError when there is no such step."""
        before = child.state
        if to not in TRANSITIONS[before]:
            raise ValueError(f"no step from {before} to {to}")
        child.state = to
        child.since = now
        self.counts[before, to] += 1
        self.index(child)
        self._observer(child, before, to)

    def index(self, child: Child) -> None:
        """Put the child among the free ones, or take it out: its state or its slot changed."""
        slot = self.by_worker[child.worker]
        idle = self.idle.setdefault(slot.pool, {})
        free = (
            child.state is READY
            and slot.child is child
            and child.conn is not None
            and not (child.lost or child.retire or child.stuck or slot.draining)
        )
        if free:
            idle.setdefault(child)
        else:
            idle.pop(child, None)

    def free(self, pool: str, worker: str = "", command: str = "") -> Child | None:
        """A free child, of this worker or of any; it stays among the free ones until it moves.
        `command`: it has to know this one.
        """
        if worker:
            slot = self.by_worker.get(worker)
            child = slot.child if slot is not None and slot.pool == pool else None
            if child is None or (command and not self.knows(worker, command)):
                return None
            return child if child in self.idle.get(pool, ()) else None
        idle = self.idle.get(pool)
        if command and idle:
            return next((one for one in reversed(idle) if self.knows(one.worker, command)), None)
        return next(reversed(idle)) if idle else None

    def take_over(self, child: Child) -> Child | None:
        """The spare is the slot's child from now on; gives the one that it replaces."""
        slot = self.by_worker[child.worker]
        former, slot.child = slot.child, child
        slot.spare = None
        child.spare = False
        if former is not None:
            former.retire = True
            self.index(former)
        self.index(child)
        return former

    def displace(self, worker: str, *, spare: bool) -> Child | None:
        """Another process claims a place; the living one there leaves when its hands are empty."""
        slot = self.slot(worker)
        former = slot.spare if spare else slot.child
        if former is None or former.conn is None:
            return None
        if spare:
            slot.spare = None
        else:
            slot.child = None
        former.spare, former.retire = False, True
        self.index(former)
        return former

    def remove(self, child: Child, now: float) -> None:
        """The process is gone and nothing follows it."""
        if child.state is not TERMINATING:
            self.move(child, TERMINATING, now)
        self.move(child, GONE, now)
        self._forget(child)

    def remove_slot(self, slot: Slot, now: float) -> None:
        """The worker is gone, and its children with it."""
        for child in list(slot.children.values()):
            self.remove(child, now)
        self._forget_commands(slot, now)
        del self.by_worker[slot.worker]

    def _forget_commands(self, slot: Slot, now: float) -> None:
        pool, commands = slot.pool, slot.commands
        self.learn(slot, ())
        self._left = {key: at for key, at in self._left.items() if now - at <= _RESTART_S}
        gone = (command for command in commands if not self._known[pool][command])
        self._left.update(((pool, command), now) for command in gone)

    def _forget(self, child: Child) -> None:
        slot = self.by_worker[child.worker]
        child.conn = None  # what its connection still says is nobody's
        del self.by_pid[child.fingerprint]
        del slot.children[child.fingerprint]
        self.idle.get(slot.pool, {}).pop(child, None)
        self.roomy[slot.pool].pop(child, None)
        if slot.child is child:
            slot.child = None
        if slot.spare is child:
            slot.spare = None
