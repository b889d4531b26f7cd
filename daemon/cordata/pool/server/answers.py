"""What clients ask of sessions and globals, and the answers."""

from __future__ import annotations

from cordata.core.pool.globals import Globals
from cordata.core.pool.message import ErrorFrame, GlobalOp, Message, Reply, SessionOp
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import Session
from cordata.errors import PoolError, SessionNotFound


def answer_session(table: SessionTable, op: SessionOp, now: float) -> Message:
    """Do it. `get`, `create` and `update` give the whole session, the others no data."""
    try:
        return _session(table, op, now)
    except PoolError as error:
        return ErrorFrame(id=op.id, code=error.code, m=str(error))


def answer_global(table: Globals, op: GlobalOp) -> Message:
    """Do it. `get` gives the keys that were asked for and exist; none asked for: all."""
    if op.op == "get":
        keys = op.keys or table.data
        found = {key: table.data[key] for key in keys if key in table.data}
        return Reply(op.id, v=table.version, set=found)
    try:
        table.change(op.set if op.op == "set" else {}, op.delete)
    except PoolError as error:
        return ErrorFrame(id=op.id, code=error.code, m=str(error))
    return Reply(op.id, v=table.version)


def _session(table: SessionTable, op: SessionOp, now: float) -> Message:
    match op.op:
        case "create":
            session = table.create(
                op.s,
                now,
                data=op.set,
                ttl_s=op.ttl,
                affinity=op.aff or None,
                worker=op.wk or "",
            )
        case "get":
            session = _there(op, table.peek(op.s, now) if op.peek else table.touch(op.s, now))
        case "update":
            session = table.update(
                op.s,
                now,
                set=op.set,
                delete=op.delete,
                ttl_s=op.ttl,
                affinity=op.aff or None,
                worker=op.wk,
            )
        case "touch":
            session = _there(op, table.touch(op.s, now, op.ttl))
            return _reply(op, session, now, data=False)
        case "count":
            counted = table.count(op.s, now, op.by)
            session = _there(op, table.peek(op.s, now))
            reply = _reply(op, session, now, data=False)
            reply.cnt = dict(counted)
            return reply
        case "delete":
            if not table.delete(op.s, now):
                _there(op, None)
            return Reply(op.id, s=op.s)
    return _reply(op, session, now, data=True)


def _there(op: SessionOp, session: Session | None) -> Session:
    if session is None:
        raise SessionNotFound(f"there is no session {op.s!r}")
    return session


def _reply(op: SessionOp, session: Session, now: float, *, data: bool) -> Reply:
    return Reply(
        op.id,
        s=session.id,
        v=session.version,
        ttl=max(session.expires - now, 0.0),
        set=dict(session.data) if data else {},
        cnt=dict(session.counters) if data else {},
        aff=session.affinity,
        wk=session.worker,
    )
