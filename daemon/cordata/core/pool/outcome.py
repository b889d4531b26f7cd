"""How a call ends that its child did not answer: deadlines, cancelled calls, children that died."""

from __future__ import annotations

from collections.abc import Iterable

from cordata.core.pool.ahead import SOON_S, Ahead
from cordata.core.pool.call import AHEAD, DETACHED, RUNNING, WAITING, Call
from cordata.core.pool.copies import drop, keeps
from cordata.core.pool.limits import Failure
from cordata.core.pool.message import Delta
from cordata.core.pool.order import ChildEvent
from cordata.core.pool.reason import why_nobody
from cordata.core.pool.registry import Child
from cordata.core.pool.state import BUSY, RESTARTING, TERMINATING, UNHEALTHY
from cordata.errors import SessionQuotaExceeded

#: A child that does not die though its worker was told is asked for again after this long.
_AGAIN_S = 5.0


class Outcome(Ahead):
    """Ends of calls. A child is free only after its answer or its death, whoever was answered."""

    def expire(self, now: float) -> None:
        """Everything whose time has come."""
        if self._look_at and now >= self._look_at:
            self.look(now)
        for call in self.wheel.due(now):
            call.due = -1
            child = call.child
            if call.stage is WAITING:
                waiting = self.waiting[call.pool]
                worker = waiting.pinned_to(call)
                waiting.drop(call, now)
                why = why_nobody(self.registry, self.pools[call.pool], worker, call.command)
                self.waited_too_long(call, now, why)
            elif child is None:
                continue
            elif call.stage is AHEAD:
                self._late_ahead(child, call, now)
            elif child.lost:
                self.bury(child, None, now)
                if child.retire:  # no other process will take its row over
                    self.registry.remove(child, now)
            elif call.stage is RUNNING:
                self.effects.cancel(child, call)
                self._detach(call, now + self.rules.kill_grace_s)
                self._answer(call, "deadline", "the deadline passed while it ran", ran=True)
            else:
                self._kill(child, call, now)

    def next_at(self) -> float | None:
        """When `expire` has to be called next; None: nothing has a deadline."""
        at, look_at = self.wheel.next_at(), self._look_at
        return min(at, look_at) if at is not None and look_at else at or look_at or None

    def cancel(self, call: Call, now: float, *, hard: bool) -> None:
        """The caller gives up; it is answered at once. `hard`: the child has a grace to end it."""
        if call.stage is WAITING:
            self.waiting[call.pool].drop(call, now)
            self.refuse(call, "cancelled", "cancelled while it waited")
        elif call.stage is AHEAD or call.stage is RUNNING:
            when = "waited" if call.stage is AHEAD else "ran"
            self._abandon(call, now, hard=hard)
            self._answer(call, "cancelled", f"cancelled while it {when}")

    def end_unread(self, call: Call, now: float) -> None:
        """The reader of a stream takes nothing, and its child can do nothing else meanwhile."""
        limit_s = self.rules.unread_timeout_s
        self._abandon(call, now, hard=True)
        text = f"nobody read the stream for {limit_s:g} s ([pool] unread_timeout_s)"
        self._answer(call, "deadline", text, ran=True)

    def client_gone(self, calls: Iterable[Call], now: float) -> None:
        """Nobody is there to be answered: what waits is never run, what runs is told."""
        for call in list(calls):
            if call.stage is WAITING:
                self.waiting[call.pool].drop(call, now)
                self.end(call)
            elif call.stage is AHEAD or call.stage is RUNNING:
                self._abandon(call, now, hard=False)
            call.client = None

    def hurry(self, worker: str, now: float) -> None:
        """The worker stops: what nobody waits for any more has the grace of a hard cancel left."""
        slot = self.registry.by_worker.get(worker)
        for child in slot.children.values() if slot is not None else ():
            call = child.call
            if call is not None and call.stage is DETACHED and not child.lost:
                self.wait_until(call, self._kill_at(call, now, hard=True))

    def bury(self, child: Child, report: ChildEvent | None, now: float) -> None:
        """The child is dead: end its calls. None: its worker did not say how, or died with it."""
        call = child.call
        if call is None:
            return
        if not child.cut and (child.lost or report is not None):
            self.recall(child, now)
        # Now only those are left of which nobody knows whether they began.
        calls = child.held()
        child.call = None
        for each in calls[1:]:
            self.waiting[child.pool].lend(each, -1)
        child.ahead.clear()
        begun = len(calls)
        if report is not None:
            serials = [each.serial for each in calls]
            begun = serials.index(report.n) + 1 if report.n in serials else 0
        for number, each in enumerate(calls, 1):
            self.off(child, each)
            if each.stage is AHEAD:
                each.stage = RUNNING
            # Only a death by itself accuses the command, and only the one that was in hand.
            if number == begun and report is not None and not (child.killed or report.why):
                self.blame(each, now)
            self._bury(child, each, report, now, began=number <= begun)

    def blame(self, call: Call, now: float) -> None:
        """A child died by itself in this call."""
        self.crashes[call.command] += 1
        if self.poison.died(call.command, now):
            self.effects.note("poisoned", call)

    def _bury(
        self,
        child: Child,
        call: Call,
        report: ChildEvent | None,
        now: float,
        *,
        began: bool,
    ) -> None:
        if call.session:
            drop(child, call.session)
        if call.stage is not RUNNING:
            self.end(call)
        elif not began:
            self._again(call, now)
        elif call.idempotent and call.attempts < self.pools[call.pool].retries:
            call.attempts += 1
            self.retries += 1
            self._again(call, now, crash=(child, report))
        else:
            self._crashed(call, child, report)

    def _again(
        self, call: Call, now: float, *, crash: tuple[Child, ChildEvent | None] | None = None
    ) -> None:
        """Stand in line again, at the place it had; `crash`: what ended the run before, if any."""
        poisoned = self.poison.refused_until(call.command, now) is not None
        if now >= call.deadline:
            ran = crash is not None or call.attempts > 0
            self.refuse(call, "deadline", "the deadline passed as its child died", ran=ran)
        elif self.stopped:
            self.refuse(call, "not_run", "the pool stops")
        elif crash is not None and poisoned:
            self._crashed(call, *crash)
        elif not self.refused_as_poisoned(call, now):
            self._unwatch(call)
            call.stage = WAITING
            call.child = None
            call.queue_deadline = call.deadline
            self.effects.note("retried", call)
            self.place(call, now, back=True)

    def _crashed(self, call: Call, child: Child, report: ChildEvent | None) -> None:
        found = crash_of(child, report)
        more = f", at try {call.attempts + 1}" if call.attempts else ""
        exit_code, signal = found.data["exit_code"], found.data["signal"]
        self.effects.note("crashed", call, exit_code=exit_code, signal=signal)
        self.refuse(call, found.code, found.text + more, **found.data)

    def _abandon(self, call: Call, now: float, *, hard: bool) -> None:
        """The child is told; it is killed if it goes on for too long."""
        child = call.child
        assert child is not None
        if not child.lost:
            if child.call is call:
                self.effects.cancel(child, call)
            else:
                self.effects.skip(child, call)
            self._detach(call, self._kill_at(call, now, hard=hard))
        else:
            call.stage = DETACHED  # the report of its death is still waited for

    def _kill_at(self, call: Call, now: float, *, hard: bool) -> float:
        latest = call.deadline + self.rules.kill_grace_s
        return min(now + self.rules.cancel_grace_s, latest) if hard else latest

    def _detach(self, call: Call, kill_at: float) -> None:
        call.stage = DETACHED
        self.wait_until(call, kill_at)

    def _answer(self, call: Call, code: str, text: str, **data: object) -> None:
        """Tell the caller, though the child still has the call in hand."""
        stage, child, due = call.stage, call.child, call.due
        call.due = -1  # the entry in the wheel stays
        self.refuse(call, code, text, **data)
        call.stage, call.child, call.due = stage, child, due
        call.client = None

    def _late_ahead(self, child: Child, call: Call, now: float) -> None:
        """Its time has passed. The child gives it back, or has just begun it."""
        if not child.lost:
            self.effects.skip(child, call)
        if now < call.deadline:
            self.wait_until(call, call.deadline)
        elif now < call.deadline + SOON_S:
            self.wait_until(call, call.deadline + SOON_S)
        else:
            self._detach(call, call.deadline + self.rules.kill_grace_s)
            self._answer(call, "deadline", "the deadline passed at a child", ran=True)

    def _kill(self, child: Child, call: Call, now: float) -> None:
        if child.call is not call:
            self.wait_until(call, now + _AGAIN_S)
            return
        past = now - call.deadline
        why = "deadline" if past >= 0 else "cancelled"
        if not child.killed:
            child.killed = True
            self.effects.note("killed", call, reason=why)
            if child.state is BUSY:
                self.registry.move(child, UNHEALTHY, now)
        self.effects.kill(child, call, why)
        self.wait_until(call, now + _AGAIN_S)

    def settle(
        self, child: Child, call: Call, delta: Delta | None, now: float, *, keep: bool
    ) -> str:
        """What the call changed in its session; gives the reason when it cannot be kept."""
        if not keep:
            self._spoil(child, call.session, now)
            return ""
        if delta is None or not (delta.set or delta.delete or delta.cnt):
            return ""
        session = self.sessions.peek(call.session, now)
        before = session.version if session is not None else -1
        try:
            session = self.sessions.apply(call.session, delta, now)
        except SessionQuotaExceeded as error:
            self._spoil(child, call.session, now)
            return str(error)
        if session is None:
            drop(child, call.session)
        else:
            keeps(child, session, delta.v, before)
        return ""

    def _spoil(self, child: Child, id: str, now: float) -> None:
        """The child may have kept what nobody else has."""
        drop(child, id)
        session = self.sessions.peek(id, now)
        if session is not None and session.lent is not None:
            self.sessions.unlend(session)

    def lose(self, child: Child, now: float) -> None:
        """Its connection ended, so it is as good as dead; how it died its worker says."""
        child.conn = None
        child.lost = True
        self.registry.index(child)
        if not child.cut:
            self.recall(child, now)
        call = child.call
        if self.registry.by_worker[child.worker].conn is None:
            self.bury(child, None, now)
        elif call is not None:
            latest = now + self.rules.exit_report_s
            running = call.stage is RUNNING
            self.wait_until(call, min(latest, call.deadline) if running else latest)
        if child.state not in (RESTARTING, TERMINATING):
            self.registry.move(child, RESTARTING, now)


def crash_of(child: Child, report: ChildEvent | None) -> Failure:
    """What its caller is told of a child's end in a call; None: its worker did not say how."""
    code = report.code if report else None
    signal = report.sig if report else None
    if signal is not None:
        how = f"was killed by signal {signal}"
    else:
        how = "is gone" if code is None else f"ended with {code}"
    data = {
        "exit_code": code,
        "signal": signal,
        "lines": list(report.lines) if report else [],
        "worker": child.worker,
        "pid": child.pid,
    }
    return Failure("crashed", f"the child {child.pid} of worker {child.worker} {how}", data)
