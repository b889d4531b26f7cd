"""Which child gets which call. Pure rules of one pool in one client; time is an argument.

A child gets at most two calls of a client at a time, so that it need not wait for the client
between them, or up to DEPTH_SHORT while all of them take less than BUDGET_US; all other calls wait
in the client's queue. The next call goes to

1. a child that has calls of this client, if they take less than AWAKE_US together: to wake another
   child costs as much;
2. a child with no call in flight: first that of the session's preferred worker, then the first one,
   whose caches are warm;
3. else, the child that has the fewest calls of this client;
4. else, if all children have run a call for longer than LONG_CALL_S, one without a call of this
   client: it begins the call as soon as it ends that of another client.

A call that waits at a child whose current call runs longer than LONG_CALL_S is revoked if another
child could begin it sooner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cordata.config.pool import PoolConfig
from cordata.pool.client.call import Call
from cordata.pool.client.queue import CallQueue
from cordata.pool.shared.page import StatusReader
from cordata.pool.shared.paths import ChildAddress, Place
from cordata.pool.shared.protocol import CommandOptions

#: Calls of one client at one child, and the same for very short ones. With 2 echo calls at a time
#: the processor time of a call is 1.6 times that with 16: each of them wakes the child.
DEPTH, DEPTH_SHORT = 2, 16
#: Limit of the run time of one client's calls at one child, if they are more than DEPTH.
BUDGET_US = 1000
#: Estimated cost of waking a process: its own time, and the cache misses of others. Without this
#: rule an echo call takes 1.6 times the processor time when a client has 4, 8 or 16 under way.
AWAKE_US = 150
#: A child that has run one call for this long is not expected to begin the next one soon.
LONG_CALL_S = 0.010
#: Workers named in an error text, at most.
_NAMED = 10


@dataclass(eq=False, slots=True)
class ChildState:
    """The state of one child in a client."""

    address: ChildAddress
    #: Its status page.
    load: StatusReader
    #: Whether it has answered the client's hello; then `commands` are known.
    ready: bool = False
    commands: dict[str, CommandOptions] = field(default_factory=dict)
    #: The client's calls that it has, by their number on the connection, oldest first.
    calls: dict[int, Call] = field(default_factory=dict)
    #: How many calls of the client it may have.
    depth: int = DEPTH
    #: Its socket is full.
    blocked: bool = False

    @property
    def place(self) -> Place:
        """Its worker, and its number among the children of that worker."""
        return self.address.place

    def runs_long(self, now: float) -> bool:
        """Whether its current call has run for longer than LONG_CALL_S."""
        since = self.load.busy_since
        return since > 0.0 and now - since > LONG_CALL_S

    @property
    def is_free(self) -> bool:
        """Whether it has no call, of any client."""
        return not self.calls and not self.load.in_flight


class Scheduler:
    """The children of one pool, and the calls that wait for one."""

    def __init__(self, name: str, config: PoolConfig) -> None:
        self.name = name
        self.config = config
        self.queue = CallQueue(config)
        #: Estimated run time of a call, by command.
        self._run_us: dict[str, int] = {}
        #: All commands that some child knows.
        self.commands: frozenset[str] = frozenset()
        self.children: list[ChildState] = []
        #: Workers that have a control socket, with or without a child.
        self.workers: set[str] = set()

    def add(self, child: ChildState) -> None:
        """Add a child."""
        self.children.append(child)

    def learn(self) -> None:
        """Recompute `commands`: those of a child have changed."""
        known = (child.commands for child in self.children if child.ready)
        self.commands = frozenset().union(*known)

    def remove(self, child: ChildState) -> None:
        """Remove a child, if it is here."""
        if child in self.children:
            self.children.remove(child)
            self.learn()

    def ran(self, child: ChildState, command: str, run_us: int) -> None:
        """Update the estimate of the command: a call took `run_us`."""
        # Raise it slowly: one call that was delayed by a busy processor says nothing of the next.
        before = self._run_us.get(command, run_us)
        run_us = self._run_us[command] = max(1, min(run_us, before + before // 4 + 1))
        child.depth = min(DEPTH_SHORT, max(DEPTH, BUDGET_US // run_us))

    def choose(self, call: Call, now: float, *, prefer: str = "") -> ChildState | None:
        """The child that gets the call now; None: it has to wait. `prefer`: the preferred worker of
        the session.
        """
        free: ChildState | None = None
        shallow: ChildState | None = None
        long_running: ChildState | None = None
        all_run_long = True
        run_us = self._run_us.get(call.command, BUDGET_US)
        awake = 0 if prefer else min(DEPTH_SHORT, AWAKE_US // run_us)
        for child in self.children:
            if not child.ready or child.blocked or not child.load.takes_calls:
                continue
            if (call.pinned and child.place.worker != call.pinned) or (
                call.command not in child.commands
            ):
                continue
            ours = len(child.calls)
            if not ours and not child.load.in_flight:
                if not prefer or child.place.worker == prefer:
                    return child
                free, all_run_long = free or child, False
            elif 0 < ours < awake and not child.runs_long(now):
                return child
            elif child.runs_long(now):
                if not ours:
                    long_running = long_running or child
            else:
                all_run_long = False
                if ours < child.depth and (shallow is None or ours < len(shallow.calls)):
                    shallow = child
        return free or shallow or (long_running if all_run_long else None)

    def next_call(self, child: ChildState, now: float) -> Call | None:
        """Remove and return the first waiting call that may go to this child; None: there is none,
        or the child has enough.
        """
        if (
            not self.queue.count
            or len(child.calls) >= child.depth
            or not child.ready
            or child.blocked
        ):
            return None
        if not child.load.takes_calls or child.runs_long(now):
            return None
        return self.queue.take(child.place.worker, child.commands)

    def next_pair(self, now: float) -> tuple[ChildState, Call] | None:
        """As `next_call`, for the child with the fewest calls; None: all have enough."""
        children = sorted(self.children, key=lambda child: (not child.is_free, len(child.calls)))
        for child in children:
            call = self.next_call(child, now)
            if call is not None:
                return child, call
        if any(child.ready and not child.runs_long(now) for child in children):
            return None
        for child in children:  # all run long calls: let the next one wait at a child
            if child.ready and not (child.calls or child.blocked) and child.load.takes_calls:
                call = self.queue.take(child.place.worker, child.commands)
                if call is not None:
                    return child, call
        return None

    def free_child(self, call: Call) -> ChildState | None:
        """A child that would begin the call at once."""
        for child in self.children:
            if child.ready and child.is_free and child.load.takes_calls:
                if call.command in child.commands and call.pinned in ("", child.place.worker):
                    return child
        return None

    def misplaced(self, now: float) -> list[tuple[ChildState, int]]:
        """Children with a long call and others to revoke behind it: the child, and the number of
        the last call that another child could begin. The caller has to check whether they have
        begun.
        """
        found = []
        for child in self.children:
            if not child.runs_long(now):
                continue
            for number, call in reversed(child.calls.items()):
                if not call.pinned and self._could_begin(call, child, now):
                    found.append((child, number))
                    break
        return found

    def has_handshaking_child(self, worker: str = "") -> bool:
        """Whether a free child (of this worker, if given) has not answered the hello yet."""
        return any(
            not child.ready and child.is_free and worker in ("", child.place.worker)
            for child in self.children
        )

    @property
    def has_unknown(self) -> bool:
        """Whether the commands of some child are not known yet."""
        return not all(child.ready for child in self.children)

    @property
    def is_complete(self) -> bool:
        """Whether each worker has a child, and the commands of all children are known."""
        present = {child.place.worker for child in self.children}
        return bool(present) and self.workers <= present and all(one.ready for one in self.children)

    def unavailable_reason(self, call: Call) -> str:
        """Why no child can take the call, for an error text; "": some child can, but is busy."""
        name = self.name
        children = [child for child in self.children if child.ready]
        if call.pinned:
            if call.pinned not in self.workers | {child.place.worker for child in children}:
                there = names(self.workers) or "none"
                return f"worker {call.pinned} is not connected (there are: {there})"
            children = [child for child in children if child.place.worker == call.pinned]
            if not children:
                return f"worker {call.pinned} has no warm child"
            if any(child.load.takes_calls for child in children):
                return ""
            undo = f"unless it stops, `cordata pool drain {call.pinned} --undo` ends it"
            return f"worker {call.pinned} is drained; {undo}"
        knowing = [child for child in children if call.command in child.commands]
        if any(child.load.takes_calls for child in knowing):
            return ""
        if knowing:
            drained_ones = names({child.place.worker for child in knowing})
            undo = "unless they stop, `cordata pool drain N --undo` ends it"
            return f"all workers of pool {name} are drained: {drained_ones}; {undo}"
        if children:
            there = names({child.place.worker for child in children})
            return f"no connected worker of pool {name} knows {call.command!r}: {there}"
        if self.workers or self.children:
            return f"no child of pool {name} is warm"
        own = f" (its workers: {names(self.config.workers)})" if self.config.workers else ""
        return f"no worker of pool {name} is connected{own}"

    def _could_begin(self, call: Call, holder: ChildState, now: float) -> bool:
        """Whether another child than `holder` would begin the call soon."""
        for child in self.children:
            if child is holder or not child.ready or not child.load.takes_calls:
                continue
            if (
                call.command in child.commands
                and not child.runs_long(now)
                and len(child.calls) < child.depth
            ):
                return True
        return False


def names(workers: Iterable[str]) -> str:
    """The names in order (2 before 10), as text; at most _NAMED of them."""
    found: Sequence[str] = sorted(workers, key=lambda name: (len(name), name))
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more} more" if more > 0 else "")
