"""Lends children to the client that is alone: see core/pool/loan.py for what and why."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cordata.core.pool.call import Call
from cordata.core.pool.copies import has_copy
from cordata.core.pool.limits import DEFAULT
from cordata.core.pool.loan import (
    CALLS,
    LENT,
    MOST,
    SESSION_CALLS,
    WITHIN_S,
    lent_s,
    loan_of,
)
from cordata.core.pool.message import ErrorFrame, Lent, Loan, Lost, Result
from cordata.core.pool.order import ChildEvent, Kill, News, Passed, Recall, Returned
from cordata.core.pool.outcome import crash_of
from cordata.core.pool.page import SIZE
from cordata.core.pool.registry import Child, Holding
from cordata.core.pool.sending import BUDGET_US
from cordata.core.pool.shelf import Session
from cordata.core.pool.state import BUSY, READY
from cordata.errors import ProtocolError
from cordata.log import logger
from cordata.pool.server.kept import OpenLoan, forget, keep_changes, tell_globals

log = logger("cordata.pool")

#: For the answers that a client has not read: the kernel gives as much as it may.
_BUFFER = 1 << 20

if TYPE_CHECKING:
    from cordata.pool.server.clientlink import ClientPeer
    from cordata.pool.server.hub import Hub


class Lending:
    """All loans of a manager. At most one client has any, and it is alone."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._loans: dict[int, OpenLoan] = {}
        self._last = 0
        #: Who called last, how many short calls it has to make yet, and since when these count.
        self._client: ClientPeer | None = None
        self._left, self._since = CALLS, 0.0
        #: At the end of this turn children are to be lent.
        self.wanted = False
        #: Loans that were made, calls over them as far as they were returned, and the failed ones.
        self.made = self.calls = self.failed = 0
        hub.sessions.unlend = self._unlend

    def __len__(self) -> int:
        return len(self._loans)

    def out(self) -> bool:
        """Whether a living child is lent."""
        return any(loan.holds for loan in self._loans.values())

    def called(self, client: ClientPeer, command: str) -> None:
        """A client sent a call here."""
        if client is not self._client:
            self._client, self._left, self._since = client, CALLS, self._hub.now
            self.wanted = False
            self.recall_all()
        elif client.borrows and self._hub.dispatcher.pace.expected_us(command) <= BUDGET_US:
            self._left -= 1
            if not self._left:
                quick = self._hub.now - self._since <= WITHIN_S
                self._left, self._since = CALLS, self._hub.now
                self.wanted = quick and self._may()

    def _may(self) -> bool:
        """A client knows neither which pool a command belongs to, nor how long it may wait."""
        pools = self._hub.dispatcher.pools
        plain = len(pools) == 1 and not pools[DEFAULT].queue_timeout_s
        return plain and self._hub.dispatcher.rules.lend

    def extend(self) -> None:
        """Who has children on loan gets those, too, that take calls since. Once a second."""
        if any(not loan.recalled and loan.client is self._client for loan in self._loans.values()):
            self.wanted = True
            self._hub.wake()

    def child_of(self, client: ClientPeer, id: int) -> Child | None:
        """The child of a loan."""
        loan = self._loans.get(id)
        return None if loan is None or loan.recalled or loan.client is not client else loan.child

    def lend(self) -> None:
        """Every child that takes calls, as far as it is not lent."""
        self.wanted = False
        client, hub = self._client, self._hub
        if client is None or not (client.borrows and client.ours):
            return
        if hub.stopping or self._last == MOST or not self._may():
            return
        for slot in hub.dispatcher.registry.by_worker.values():
            child = slot.child
            if child is None or child.conn is None or child.loan is not None or slot.draining:
                continue
            leaves = child.lost or child.retire or child.due or child.stuck
            if child.able and not leaves and child.state in (READY, BUSY):
                self._lend(child, client)

    def _lend(self, child: Child, client: ClientPeer) -> None:
        self._last += 1
        loan = OpenLoan(self._last, child, client)
        queue = self._hub.dispatcher.pools[DEFAULT].max_waiting
        grace_s = self._hub.dispatcher.rules.cancel_grace_s
        message = Loan(l=loan.id, wk=child.worker, q=queue, g=grace_s)
        try:
            page = os.memfd_create("cordata-loan", os.MFD_CLOEXEC)
        except OSError as error:  # no descriptor is left, or the kernel has none of these
            log.debug("nothing can be lent: %s", error)
            return
        with open(page, "wb", buffering=0) as file, ExitStack() as stack:
            try:
                file.truncate(SIZE)
                theirs, ours = (stack.enter_context(one) for one in socket.socketpair())
            except OSError as error:
                log.debug("nothing can be lent: %s", error)
                return
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            tell_globals(self._hub, child)
            if not child.conn.send_with(message, [ours.fileno(), page]):
                return
            self._loans[loan.id] = child.loan = loan
            self.made += 1
            # If it cannot be told, the child finds that nobody is at the other end.
            client.send_with(message, [theirs.fileno(), page])

    def recall(self, loan: OpenLoan) -> None:
        """Once; the child says when it is over."""
        if not loan.recalled:
            loan.recalled = True
            if loan.holds:
                loan.child.conn.say(Recall(l=loan.id))

    def recall_all(self) -> None:
        """Somebody else wants the children, or the manager stops."""
        for loan in self._loans.values():
            self.recall(loan)

    def recall_worker(self, worker: str) -> None:
        """It is to have no calls, or may have them again."""
        for loan in self._loans.values():
            if loan.child.worker == worker:
                self.recall(loan)

    def left(self, client: ClientPeer) -> None:
        """A client is gone."""
        if self._client is client:
            self._client = None
            self.recall_all()

    def returned(self, child: Child, message: Returned) -> None:
        """A child ran calls of its client, and may be free of it. Raises: ProtocolError."""
        loan = self._found(child, message.l)
        child.holds = None
        if not message.more:
            del self._loans[loan.id]
            child.loan = None
        child.calls += message.n
        self._count(message.n, message.f)
        self._hub.counting.run_ms.add_all(message.ms)
        if self._hub.stopping and not self._hub.running():
            self._hub.idle.set()

    def _count(self, calls: int, failed: int) -> None:
        self.calls += calls
        self.failed += failed
        counting, outcomes = self._hub.counting, self._hub.dispatcher.outcomes
        counting.calls += calls
        counting.results += calls - failed
        outcomes["ok"] += calls - failed
        outcomes["failed"] += failed

    def holds(self, event: ChildEvent) -> None:
        """A call of a loan takes long."""
        child = self._hub.dispatcher.registry.by_pid.get((event.pid, event.start))
        if child is not None and child.loan is not None:
            now = self._hub.now
            child.holds = Holding(event.n, event.c, now - event.age, now + event.d, now)

    def came_back(self, child: Child, *, able: bool) -> None:
        """A child said hello: what it was lent over a former connection is over."""
        child.able = able
        for loan in [loan for loan in self._loans.values() if loan.child is child]:
            del self._loans[loan.id]
        self._purge()

    def died(self, event: ChildEvent) -> None:
        """A child is dead: its client hears how, and its command is blamed."""
        child = self._hub.dispatcher.registry.by_pid.get((event.pid, event.start))
        for loan in [loan for loan in self._loans.values() if loan.child is child]:
            del self._loans[loan.id]
            found = crash_of(loan.child, event)
            loan.client.say(Lost(l=loan.id, data=dict(found.data), m=found.text))
        if child is None:
            return
        child.loan = None
        self._count(event.lent, event.f)
        if event.n >= LENT and event.run:
            # One that its client may run again, which is then another call here.
            self._hub.counting.calls += 1
            end = event.why if event.why in ("deadline", "cancelled") else "crashed"
            self._hub.dispatcher.outcomes[end] += 1
            if not (event.why or child.killed):
                now = self._hub.now
                self._hub.dispatcher.blame(Call(event.n, event.c, now, now, now, child=child), now)
        self._purge()

    def kill(self, client: ClientPeer, serial: int) -> None:
        """The client cancelled this call, and gave it the time to end."""
        loan = self._loans.get(loan_of(serial)) if serial >= LENT else None
        if loan is not None and loan.client is client:
            slot = self._hub.dispatcher.registry.by_worker.get(loan.child.worker)
            if slot is not None and slot.conn is not None:
                slot.conn.say(Kill(loan.child.pid, loan.child.start, serial, "cancelled"))

    # --- sessions and globals

    def lend_session(self, loan: OpenLoan, client: object, id: str) -> None:
        """A call of the client ended at its child: it may go on there, as far as this session."""
        hub = self._hub
        session = hub.sessions.peek(id, hub.now)
        if loan.recalled or loan.client is not client or session is None or session.calls:
            return
        session.asked += 1
        if session.asked < SESSION_CALLS:
            return
        bound = session.affinity != "hint" and session.worker != loan.child.worker
        seconds = lent_s(session.ttl_s)
        if bound or not seconds or not has_copy(loan.child, session):
            return
        if session.lent is not None and session.lent is not loan:
            self._unlend(session)
        hub.sessions.lend(session, loan, hub.now, seconds)
        session.asked = SESSION_CALLS  # when it comes back here for a moment, it is lent again
        loan.child.conn.say_now(News(lent=[id]))
        loan.client.say(Lent(l=loan.id, s=id, d=seconds))

    def _unlend(self, session: Session) -> None:
        loan: OpenLoan = session.lent
        session.lent, session.asked = None, 0
        if loan.holds:
            forget(loan.child, session.id)

    def tell_globals(self) -> None:
        """They may have changed: children that begin calls by themselves hear of it at once."""
        for loan in self._loans.values():
            if loan.holds:
                tell_globals(self._hub, loan.child)

    def passed(self, child: Child, message: Passed) -> None:
        """What a call of a loan changed is kept, then its client hears. Raises: ProtocolError."""
        loan = self._found(child, message.l)
        error = keep_changes(self._hub, loan, message)
        self.tell_globals()
        if error:
            loan.client.say(ErrorFrame(id=message.id, code="quota", m=error))
        else:
            loan.client.say(Result(message.id, payload=message.payload, x=message.x))

    def _found(self, child: Child, id: int) -> OpenLoan:
        loan = self._loans.get(id)
        if loan is None or loan.child is not child:
            raise ProtocolError(f"a word on loan {id}, which is not this child's")
        return loan

    def _purge(self) -> None:
        """Children of which nobody ever told how they ended."""
        known = self._hub.dispatcher.registry.by_pid
        for loan in list(self._loans.values()):
            if known.get(loan.child.fingerprint) is not loan.child:
                del self._loans[loan.id]
