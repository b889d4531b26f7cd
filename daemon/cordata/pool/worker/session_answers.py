"""Operations of clients on sessions and globals. Blocking."""

from __future__ import annotations

from cordata.pool.shared.protocol import GlobalRequest, Reply, SessionRequest, SessionState
from cordata.pool.shared.sessions import Session, SessionStore


def answer_globals(store: SessionStore, request: GlobalRequest) -> Reply:
    """Do the operation in the store. Raises: PoolError."""
    if request.operation == "change":
        store.change_globals(set=request.set, delete=request.delete)
        return Reply(request.number)
    if request.operation == "stats":
        return Reply(request.number, counts=store.stats())
    values = store.globals()
    if request.keys:
        values = {key: values[key] for key in request.keys if key in values}
    return Reply(request.number, values=values)


def answer_session(store: SessionStore, request: SessionRequest) -> Reply:
    """Do the operation in the store. Raises: PoolError."""
    number, id = request.number, request.session
    affinity = request.affinity or None
    match request.operation:
        case "create":
            session = store.create(
                id,
                data=request.set,
                ttl_s=request.ttl_s,
                affinity=affinity,
                worker=request.worker or "",
            )
            return Reply(number, sessions=[state_of(session)])
        case "get":
            return Reply(number, sessions=[state_of(store.get(id, peek=request.peek))])
        case "update":
            session = store.update(
                id,
                set=request.set,
                delete=request.delete,
                ttl_s=request.ttl_s,
                affinity=affinity,
                worker=request.worker,
            )
            return Reply(number, sessions=[state_of(session)])
        case "delete":
            store.delete(id)
            return Reply(number)
        case "touch":
            return Reply(number, sessions=[state_of(store.touch(id, request.ttl_s))])
        case "count":
            return Reply(number, counts=store.count(id, request.count))
        case "page":
            found = store.page(request.after, request.limit)
            return Reply(number, sessions=[state_of(session) for session in found])


def state_of(session: Session) -> SessionState:
    """A session in the form of the protocol."""
    return SessionState(
        id=session.id,
        version=session.version,
        ttl_s=session.ttl_s,
        expires_in_s=session.expires_in_s,
        bytes=session.bytes,
        affinity=session.affinity,
        worker=session.worker,
        data=session.data,
        counters=session.counters,
    )
