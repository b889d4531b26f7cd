"""Operations of clients on sessions and globals. Blocking."""

from __future__ import annotations

from cordata.pool.shared.protocol import GlobalRequest, Reply, SessionRequest
from cordata.pool.shared.sessions import Delta, SessionStore


def answer(store: SessionStore, request: SessionRequest | GlobalRequest) -> Reply:
    """Do the operation in the store. Raises: PoolError."""
    if isinstance(request, GlobalRequest):
        return _answer_globals(store, request)
    return _answer_session(store, request)


def _answer_globals(store: SessionStore, request: GlobalRequest) -> Reply:
    if request.operation == "change":
        store.save("", Delta(globals_set=request.set, globals_delete=request.delete))
        return Reply(request.number)
    if request.operation == "stats":
        return Reply(request.number, counts=store.stats())
    values = store.globals()
    if request.keys:
        values = {key: values[key] for key in request.keys if key in values}
    return Reply(request.number, values=values)


def _answer_session(store: SessionStore, request: SessionRequest) -> Reply:
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
            return Reply(number, sessions=[session])
        case "get":
            return Reply(number, sessions=[store.get(id, peek=request.peek)])
        case "update":
            session = store.update(
                id,
                set=request.set,
                delete=request.delete,
                ttl_s=request.ttl_s,
                affinity=affinity,
                worker=request.worker,
            )
            return Reply(number, sessions=[session])
        case "delete":
            store.delete(id)
            return Reply(number)
        case "touch":
            return Reply(number, sessions=[store.touch(id, request.ttl_s)])
        case "count":
            return Reply(number, counts=store.count(id, request.count))
        case "page":
            return Reply(number, sessions=store.page(request.after, request.limit))
