"""The dispatcher: everything that happens to the pool comes in here, as a call with its time.

Rules that hold after every step: a call is answered once; at most one child has it in hand, unless
it was declared idempotent and its former child is dead; a child is free only after its answer or
its death; a call that is over never starts; a child that becomes free takes the oldest call that
waits and that it may run; calls leave the queue in its order, also those that are sent ahead to a
busy child (placing.py), which can be had back until they begin (ahead.py); what a failed or
abandoned call changed in its session is lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from cordata.core.pool.call import RUNNING, Call
from cordata.core.pool.limits import LONGEST_S, pool_of_command
from cordata.core.pool.message import CallFrame, Delta
from cordata.core.pool.near import nearest
from cordata.core.pool.order import ChildEvent
from cordata.core.pool.outcome import Outcome
from cordata.core.pool.registry import Child, Slot
from cordata.core.pool.state import (
    BUSY,
    INITIALIZING,
    READY,
    RESTARTING,
    STARTING,
    TERMINATING,
    UNHEALTHY,
)


class Dispatcher(Outcome):
    """See the module. It knows no socket, no clock and no task; `effects` does what it decides."""

    _serial = 0

    def call_of(
        self, frame: CallFrame, *, client: object, source: int, size_bytes: int, now: float
    ) -> Call:
        """The call that a client's frame asks for; `offer` it next."""
        pool = pool_of_command(self.in_order, frame.command)
        limits = self.pools[pool]
        self._serial += 1
        timeout_s = limits.call_timeout_s if frame.timeout_s is None else frame.timeout_s
        timeout_s = min(timeout_s, LONGEST_S)
        asked = frame.queue_timeout_s
        queue_s = limits.queue_timeout_s if asked is None else asked
        # By position: by name it takes eight times as long, a sixth of all that a call costs here.
        return Call(
            self._serial,
            frame.command,
            now,
            now + timeout_s,
            now + (min(queue_s, timeout_s) if queue_s else timeout_s),
            client,
            source,
            frame.id,
            frame.payload,
            frame.session,
            frame.idempotent,
            frame.priority,
            frame.credits,
            frame.request_id,
            frame.attempts,
            size_bytes,
            pool,
        )

    def offer(self, call: Call, now: float) -> None:
        """A call arrived."""
        if self.stopped:
            self.refuse(call, "not_run", "the pool stops")
        elif now >= call.deadline:
            self.refuse(call, "deadline", "it came after its deadline", ran=call.attempts > 0)
        elif self.registry.unknown(call.pool, call.command, now):
            near = nearest(call.command, self.registry.known(call.pool))
            self.refuse(call, "unknown_command", f"no worker knows {call.command!r}", near=near)
        elif not (self.poison.until and self.refused_as_poisoned(call, now)):
            self.place(call, now)

    def answered(
        self,
        child: Child,
        now: float,
        *,
        ok: bool,
        delta: Delta | None = None,
        quota: str = "",
        run_us: int = 0,
    ) -> Call | None:
        """The child ended its call, after `run_us`. It has the next one when this returns.
        `quota`: why what it changed cannot be kept.

        Gives the call, whose answer is to be passed on; None: nobody waits for it any more.
        """
        call = child.call
        if call is None:
            return None
        child.call = None
        child.calls += 1
        wanted = call.stage is RUNNING
        self.poison.succeeded(call.command)
        self.off(child, call)
        self.pace.ran(call.command, run_us)
        if call.session and not (delta is None and ok and wanted):
            keep = ok and wanted and not quota
            quota = self.settle(child, call, delta, now, keep=keep) or quota
        if quota:
            wanted = False
            self.refuse(call, "quota", quota)
        else:
            self.end(call)
        if wanted:
            self.outcomes["ok" if ok else "failed"] += 1
        if not (child.ahead and self.next_in_hand(child, now)):
            self.released(child, now)
        return call if wanted else None

    def stop(self, now: float) -> list[Call]:
        """No call starts any more. Gives those that waited, to be answered `not_run`."""
        self.stopped = True
        found = [call for waiting in self.waiting.values() for call in waiting.take_all(now)]
        for call in found:
            self.end(call)
            self.outcomes["not_run"] += 1
        return found

    def worker_joined(
        self, worker: str, conn: object, inv: str, commands: Iterable[str], now: float
    ) -> Slot:
        """A worker said hello."""
        slot = self.registry.slot(worker)
        slot.conn, slot.inv, slot.draining = conn, inv, False
        self.registry.learn(slot, commands)
        for child in list(slot.children.values()):
            if not (child.conn or child.call or child is slot.child):
                self._gone(child, None, now)  # who lives is named again, next
        self._reopened(slot, now)
        return slot

    def worker_lost(self, worker: str, conn: object, now: float) -> None:
        """A worker's connection ended. Its children die with it, unless it only comes back."""
        slot = self.registry.by_worker.get(worker)
        if slot is None or slot.conn is not conn:
            return
        slot.conn = None
        for child in list(slot.children.values()):
            if child.conn is None:
                self._gone(child, None, now)
        self._forget_empty(slot, now)

    def drain(self, worker: str, on: bool, now: float) -> bool:
        """Give this worker no calls, or calls again; False: there is no such worker."""
        slot = self.registry.by_worker.get(worker)
        if slot is None:
            return False
        slot.draining = on
        self._reopened(slot, now)
        return True

    def child_joined(
        self,
        worker: str,
        pid: int,
        start: int,
        conn: object,
        now: float,
        *,
        commands: Iterable[str] = (),
        spare: bool = False,
        warm: bool = False,
    ) -> Child:
        """A child said hello; `warm`: it comes back and is ready. Of two the later one stays."""
        child = self.registry.by_pid.get((pid, start))
        if child is not None and child.conn is not None:
            child.cut = True  # what it answered over its former connection was not heard
        if child is not None and child.state is TERMINATING:
            self._gone(child, None, now)  # as its former connection would have said
            child = None
        if child is None:
            former = self.registry.displace(worker, spare=spare)
            child = self._started(worker, pid, start, spare=spare, now=now)
            if former is not None and former.call is None:
                self.released(former, now)
        elif child.call is not None:
            # It dials with empty hands only: that answer went with the former connection.
            self.bury(child, None, now)
        if child.spare and not spare:
            self._take_over(child, now)  # as its worker had it do while no manager was there
        child.connected(conn)
        slot = self.registry.by_worker[child.worker]
        if slot.conn is None and not slot.commands:
            self.registry.learn(slot, commands)
        if child.state is not STARTING and child.state is not INITIALIZING:
            if child.state is not RESTARTING:
                self.registry.move(child, RESTARTING, now)
            self.registry.move(child, STARTING, now)
        if child.state is STARTING:
            self.registry.move(child, INITIALIZING, now)
        if warm:
            self.child_ready(child, now)
        return child

    def child_ready(self, child: Child, now: float) -> None:
        """Warm: it takes calls; a spare takes its slot over."""
        if child.state is not INITIALIZING or child.conn is None:
            return
        self.registry.move(child, READY, now)
        self.registry.by_worker[child.worker].start_error = ""
        if child.spare:
            self._take_over(child, now)
        if child.retire:
            self.released(child, now)
        self.hand_on(child, now)

    def child_lost(self, child: Child, conn: object, now: float, *, cut: bool = False) -> None:
        """A child's connection ended; `cut`: by us, else all that it answered was told before."""
        if child.conn is not conn:
            return
        child.cut = cut
        slot = self.registry.by_worker[child.worker]
        if child.call is None and (child.state is TERMINATING or child is not slot.child):
            self._gone(child, None, now)
            return
        self.lose(child, now)
        if slot.conn is None:
            self._gone(child, None, now)

    def child_event(self, worker: str, event: ChildEvent, now: float) -> None:
        """A worker tells of its child."""
        slot = self.registry.by_worker.get(worker)
        if event.m and slot is not None:
            slot.start_error = event.m
        child = self.registry.by_pid.get((event.pid, event.start))
        if child is None:
            if event.ev == "started":
                self._started(worker, event.pid, event.start, spare=event.why == "spare", now=now)
            return
        if event.ev == "exited":
            self._gone(child, event, now)
        elif event.ev == "warm" and child.state is STARTING:
            self.registry.move(child, INITIALIZING, now)
        elif event.ev == "unhealthy" and child.state in (READY, BUSY):
            child.killed = True
            self.registry.move(child, UNHEALTHY, now)
        elif event.ev == "due":
            child.due = True
        elif event.ev == "retired":
            child.retire = True
            self.registry.index(child)
            if child.call is None and child.state is not TERMINATING:
                self.registry.move(child, TERMINATING, now)

    def _take_over(self, spare: Child, now: float) -> None:
        """New calls go to the spare from now on; who was there leaves with empty hands."""
        former = self.registry.take_over(spare)
        if former is None or former.call is not None:
            return
        if former.lost:
            self.registry.remove(former, now)
        else:
            self.released(former, now)

    def _reopened(self, slot: Slot, now: float) -> None:
        """Whether the slot takes calls has changed."""
        if slot.child is not None:
            self.registry.index(slot.child)
            self.hand_on(slot.child, now)

    def _started(self, worker: str, pid: int, start: int, *, spare: bool, now: float) -> Child:
        """A process that was not known. One that stands in its place is dead, or leaves."""
        slot = self.registry.slot(worker)
        former = slot.spare if spare else slot.child
        if former is not None:
            self.effects.hang_up(former)
            self.bury(former, None, now)
            if former.state not in (RESTARTING, TERMINATING):
                self.registry.move(former, RESTARTING, now)
        return self.registry.join(worker, pid, start, spare=spare, now=now)

    def _gone(self, child: Child, report: ChildEvent | None, now: float) -> None:
        """The process is dead, or nobody will ever tell."""
        child.conn = None
        child.lost = True
        self.registry.index(child)
        slot = self.registry.by_worker[child.worker]
        last = child.retire or child is not slot.child or slot.conn is None
        if not last and child.state not in (RESTARTING, TERMINATING):
            self.registry.move(child, RESTARTING, now)
        self.bury(child, report, now)
        if last or child.state is TERMINATING:
            self.registry.remove(child, now)
            self._forget_empty(slot, now)

    def _forget_empty(self, slot: Slot, now: float) -> None:
        """A worker without connection and children is not known any more."""
        known = self.registry.by_worker.get(slot.worker) is slot
        if known and slot.conn is None and not slot.children:
            self.registry.remove_slot(slot, now)
