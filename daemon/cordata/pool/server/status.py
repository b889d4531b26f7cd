"""The state of the whole pool as one map, and as one line."""

from __future__ import annotations

from typing import Any

from cordata.core.pool.limits import pool_of_command
from cordata.core.pool.registry import Child, Holding, Slot
from cordata.core.pool.state import BUSY, READY, State
from cordata.pool.fingerprint import age_s
from cordata.pool.server.hub import Hub

#: A worker looks at its child once a second, and tells of a long call each time.
_HOLDS_S = 2.5


def status_of(hub: Hub) -> dict[str, Any]:
    """For `cordata pool status --json`; keys say their unit."""
    dispatcher, counting = hub.dispatcher, hub.counting
    return {
        "epoch": hub.epoch,
        "calls": counting.calls,
        "calls_per_s": round(counting.calls_per_s, 1),
        "results": counting.results,
        "chunks": counting.chunks,
        "outcomes": dict(dispatcher.outcomes),
        "retries": dispatcher.retries,
        "sent_ahead": dispatcher.sent_ahead,
        "had_back": dispatcher.had_back,
        "loans": {
            "now": len(hub.lending),
            "made": hub.lending.made,
            "calls": hub.lending.calls,
            "failed": hub.lending.failed,
        },
        "saturated": counting.saturated,
        "crashes": dict(dispatcher.crashes),
        "poisoned": {
            name: round(left_s, 1) for name, left_s in dispatcher.poison.refused(hub.now).items()
        },
        "restarts": dict(counting.restarts),
        "recycles": dict(counting.recycles),
        "stops": counting.stops,
        "pools": {name: _pool(hub, name) for name in dispatcher.pools},
        "workers": [
            _worker(hub, slot) for _, slot in sorted(dispatcher.registry.by_worker.items())
        ],
        "transitions": {
            f"{before.value} -> {to.value}": count
            for (before, to), count in sorted(dispatcher.registry.counts.items())
        },
        "run_ms": counting.run_ms.as_map(),
        "wait_ms": counting.wait_ms.as_map(),
        "sessions": _sessions(hub),
        "globals": {"keys": len(hub.globals.data), "bytes": hub.globals.bytes},
        "journal": hub.journal.status(),
        "connections": {
            "open": len(hub.links),
            "blocked": len(hub.blocked),
            "taken": dict(counting.connections),
            "refused": dict(counting.refused),
        },
        "traffic": {
            "frames_in": counting.frames_in,
            "frames_out": counting.frames_out,
            "bytes_in": counting.bytes_in,
            "bytes_out": counting.bytes_out,
            "too_large": counting.too_large,
            "protocol_errors": counting.protocol_errors,
        },
    }


def status_line(hub: Hub) -> str:
    """`4 children, 1 busy; 3 waiting; 812 calls/s; 15 sessions`: what is 0 is left out."""
    children = list(hub.dispatcher.registry.by_pid.values())
    busy = sum(_state(child, hub.now) is BUSY for child in children)
    waiting = sum(waiting.count + waiting.ahead for waiting in hub.dispatcher.waiting.values())
    rate = round(hub.counting.calls_per_s)
    sessions = len(hub.sessions)
    parts = [
        f"{_count(len(children), 'child', 'children')}" + (f", {busy} busy" if busy else ""),
        f"{waiting} waiting" if waiting else "",
        f"{rate} calls/s" if rate else "",
        _count(sessions, "session", "sessions") if sessions else "",
        "sessions are not saved" if hub.journal.degraded else "",
    ]
    return "; ".join(part for part in parts if part)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _pool(hub: Hub, name: str) -> dict[str, Any]:
    dispatcher = hub.dispatcher
    waiting = dispatcher.waiting[name]
    registry = dispatcher.registry
    children = [
        child for child in registry.by_pid.values() if registry.by_worker[child.worker].pool == name
    ]
    states = [_state(child, hub.now) for child in children]
    drained = sum(
        state is READY and registry.by_worker[child.worker].draining
        for child, state in zip(children, states, strict=True)
    )
    return {
        "ready": states.count(READY) - drained,
        "busy": states.count(BUSY),
        "drained": drained,
        "other": sum(state not in (READY, BUSY) for state in states),
        "waiting": waiting.count + waiting.ahead,
        "waiting_bytes": waiting.bytes + waiting.ahead_bytes,
        "wait_now_ms": round(waiting.longest_s(hub.now) * 1000, 1),
        "wait_max_ms": round(waiting.longest_ever_s * 1000, 1),
        "max_waiting": dispatcher.pools[name].max_waiting,
        # A worker knows those of the whole application; calls of the others go to other pools.
        "commands": [
            command
            for command in registry.known(name)
            if pool_of_command(dispatcher.in_order, command) == name
        ],
    }


def _worker(hub: Hub, slot: Slot) -> dict[str, Any]:
    """`pid` and `start` are the worker's, who starts the children; None while it is away.

    `child` is the pid of the one that gets its calls; others are its spare, or about to leave.
    """
    hello = slot.conn.peer.hello if slot.conn is not None else None
    return {
        "worker": slot.worker,
        "pid": hello.pid if hello is not None else None,
        "start": hello.start if hello is not None else None,
        "pool": slot.pool,
        "connected": slot.conn is not None,
        "draining": slot.draining,
        "start_error": slot.start_error or None,
        "invocation_id": slot.inv,
        "commands": sorted(slot.commands),
        "child": slot.child.pid if slot.child is not None else None,
        "children": [_child(hub, child) for child in slot.children.values()],
    }


def _held(child: Child, now: float) -> Holding | None:
    """The long call that a client gave to its child on loan."""
    held = child.holds
    return held if held is not None and now < held.told + _HOLDS_S else None


def _state(child: Child, now: float) -> State:
    """As an operator sees it: the registry knows nothing of calls that a client gave directly."""
    return child.state if _held(child, now) is None else BUSY


def _child(hub: Hub, child: Child) -> dict[str, Any]:
    call, held = child.call, _held(child, hub.now)
    known: dict[str, Any] = {
        "pid": child.pid,
        "start": child.start,
        "state": _state(child, hub.now).value,
        "state_s": round(hub.now - (child.since if held is None else held.began), 3),
        "age_s": round(age_s(child.start), 1),
        "spare": child.spare,
        "lent": child.loan is not None,
        "calls": child.calls,
        "rss_bytes": child.rss_bytes or None,
        "sessions": len(child.copies),
    }
    if call is not None:
        stage = call.stage.name.lower()
        known["call"] = _call(hub, call.serial, call.command, call.enqueued, call.deadline, stage)
    elif held is not None:
        known["call"] = _call(hub, held.serial, held.command, held.began, held.deadline, "lent")
    return known


def _call(
    hub: Hub, serial: int, command: str, since: float, deadline: float, stage: str
) -> dict[str, Any]:
    return {
        "id": f"{hub.epoch}-{serial}",
        "command": command,
        "age_s": round(hub.now - since, 3),
        "deadline_in_s": round(deadline - hub.now, 3),
        "stage": stage,
    }


def _sessions(hub: Hub) -> dict[str, Any]:
    stats = hub.sessions.stats
    return {
        "count": len(hub.sessions),
        "bytes": hub.sessions.bytes,
        "created": stats.created,
        "expired": stats.expired,
        "deleted": stats.deleted,
        "refused": stats.refused,
        "lookups": stats.lookups,
    }
