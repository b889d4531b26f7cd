"""Which sessions a child keeps, so that their data travels only when it changed.

The manager alone decides what a child keeps. At every run the child's copy is the table's version,
or it is sent whole; after a call that went wrong nothing is known of the copy, so it is dropped.
"""

from __future__ import annotations

from cordata.core.pool.order import SessionCopy
from cordata.core.pool.registry import Child
from cordata.core.pool.shelf import Session

#: Of one child.
MAX_COPIES = 256
MAX_COPIES_BYTES = 16 * 1024 * 1024


#: What a run says of its session, and which ones the child is to forget.
Sent = tuple[SessionCopy, list[str]]


def has_copy(child: Child, session: Session) -> bool:
    """Whether nothing of its data would have to be sent."""
    known = child.copies.get(session.id)
    return known is not None and known[0] == session.version and not child.stale


def send(child: Child, session: Session) -> Sent:
    """The child is about to run a call of this session."""
    known = child.copies.get(session.id)
    if known is not None and known[0] == session.version and not child.stale:
        child.copies.move_to_end(session.id)
        return SessionCopy(id=session.id, v=session.version, wk=session.worker), []
    child.copies.pop(session.id, None)
    child.copies_bytes -= known[1] if known else 0
    forget: list[str] = []
    if child.stale:
        forget = [id for id in child.stale if id != session.id and id not in child.copies]
        child.stale.clear()
    child.copies[session.id] = (session.version, session.bytes)
    child.copies_bytes += session.bytes
    while len(child.copies) > MAX_COPIES or (
        child.copies_bytes > MAX_COPIES_BYTES and len(child.copies) > 1
    ):
        oldest = next(iter(child.copies))
        child.copies_bytes -= child.copies.pop(oldest)[1]
        forget.append(oldest)
    copy = SessionCopy(id=session.id, v=session.version, wk=session.worker)
    if known is None or known[0] != session.version:
        copy.full = dict(session.data)
        copy.cnt = dict(session.counters)
    return copy, forget


def keeps(child: Child, session: Session, base: int, before: int) -> None:
    """The child's changes from version `base` were applied to the table's version `before`.

    When these are the same, the child's copy is the new version; else somebody else was first.
    """
    if base != before or session.id not in child.copies:
        drop(child, session.id)
        return
    _, size = child.copies[session.id]
    child.copies_bytes += session.bytes - size
    child.copies[session.id] = (session.version, session.bytes)


def drop(child: Child, id: str) -> None:
    """Nothing is known of its copy any more: it is sent whole, or forgotten, with the next run."""
    known = child.copies.pop(id, None)
    if known is not None:
        child.copies_bytes -= known[1]
        child.stale.append(id)
