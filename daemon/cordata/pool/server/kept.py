"""What children on loan know of sessions and globals, and what their calls change of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordata.core.pool.copies import drop
from cordata.core.pool.globals import UNSURE
from cordata.core.pool.order import GlobalsCopy, News, Passed
from cordata.core.pool.registry import Child
from cordata.core.pool.shelf import Session
from cordata.errors import SessionQuotaExceeded

if TYPE_CHECKING:
    from cordata.pool.server.clientlink import ClientPeer
    from cordata.pool.server.hub import Hub


@dataclass(eq=False, slots=True)
class OpenLoan:
    """One child, lent to one client."""

    id: int
    child: Child
    client: ClientPeer
    recalled: bool = False

    @property
    def holds(self) -> bool:
        """Whether the child is there, and has it: words on it find somebody."""
        return self.child.loan is self and self.child.conn is not None


def globals_for(hub: Hub, child: Child) -> GlobalsCopy | None:
    """What the child has to hear of them."""
    shared = hub.globals
    if child.globals_version == UNSURE:
        return GlobalsCopy(v=shared.version, set=dict(shared.data), full=True)
    return shared.since(child.globals_version)


def tell_globals(hub: Hub, child: Child) -> None:
    """It begins calls without a word of ours, so it has to know what there is."""
    if child.globals_version != hub.globals.version:
        child.conn.say_now(News(gl=globals_for(hub, child)))
        child.globals_version = hub.globals.version


def forget(child: Child, id: str) -> None:
    """Its copy of the session is no good: what its client sends for that comes to us.

    At once: whoever changed the session may call as soon as it has its answer.
    """
    drop(child, id)
    child.conn.say_now(News(f=[id]))


def keep_changes(hub: Hub, loan: OpenLoan, message: Passed) -> str:
    """Session and globals, both or none; gives why they cannot be kept, "" if they are."""
    delta, child = message.u, loan.child
    session = hub.sessions.peek(message.session, hub.now) if message.session else None
    own = session is not None and session.lent is loan
    try:
        if delta.gset or delta.gdel:
            hub.sessions.check(message.session, delta, hub.now)
            hub.globals.change(delta.gset, delta.gdel)
        if session is not None and (delta.set or delta.delete or delta.cnt):
            if own:
                session.lent = None  # it need not be told what it has done
            hub.sessions.apply(message.session, delta, hub.now)
            if own:
                _has(loan, session)
    except SessionQuotaExceeded as refused:
        child.globals_version = UNSURE
        if session is not None:
            session.lent = None if own else session.lent
            forget(child, message.session)
        return str(refused)
    return ""


def _has(loan: OpenLoan, session: Session) -> None:
    """The child's copy has the change already."""
    copies = loan.child.copies
    if session.id in copies:
        loan.child.copies_bytes += session.bytes - copies[session.id][1]
        copies[session.id] = (session.version, session.bytes)
        session.lent = loan
    else:
        forget(loan.child, session.id)
