"""What an operator asks and orders: `cordata pool status|sessions|drain|recycle`."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, msgpack

from cordata.core.pool.message import Ask, ErrorFrame, Message, Reply
from cordata.core.pool.order import Recycle
from cordata.pool.server.hub import Hub
from cordata.pool.server.status import status_of

_PAGE = 1000


def answer_ask(hub: Hub, ask: Ask) -> Message:
    """Do it; the answer's payload is a map."""
    match ask.op:
        case "status":
            return _reply(ask, status_of(hub))
        case "sessions":
            return _reply(ask, _sessions(hub, ask))
        case "drain" | "undrain":
            done = hub.dispatcher.drain(ask.name, ask.op == "drain", hub.now)
            hub.lending.recall_worker(ask.name)
        case "recycle":
            slot = hub.dispatcher.registry.by_worker.get(ask.name)
            done = False
            if slot is not None and slot.conn is not None:
                slot.conn.say(Recycle())
                former = slot.child.pid if slot.child is not None else None
                return _reply(ask, {"worker": ask.name, "child": former})
    if not done:
        known = hub.dispatcher.registry.by_worker
        text = f"there is no worker {ask.name!r} (there are: {', '.join(sorted(known)) or 'none'})"
        if ask.name in known:
            text = f"worker {ask.name!r} is not connected, only its child is"
        return ErrorFrame(id=ask.id, code="pool", m=text)
    return _reply(ask, {"worker": ask.name})


def _sessions(hub: Hub, ask: Ask) -> dict[str, Any]:
    """Ids, sizes and times; what a session holds is nobody's business here."""
    limit = min(max(ask.limit, 1), _PAGE)
    found = hub.sessions.page(ask.after, limit, hub.now)
    return {
        "items": [
            {
                "id": session.id,
                "bytes": session.bytes,
                "version": session.version,
                "idle_s": round(max(0.0, hub.now + session.ttl_s - session.expires), 1),
                "expires_in_s": round(session.expires - hub.now, 1),
                "ttl_s": session.ttl_s,
                "affinity": session.affinity,
                "worker": session.worker,
            }
            for session in found
        ],
        "next": found[-1].id if len(found) == limit else None,
    }


def _reply(ask: Ask, value: dict[str, Any]) -> Reply:
    return Reply(ask.id, payload=Raw(msgpack.encode(value)))
