"""The manager's own lines in the journal. Who crashed, and what it wrote, its worker says."""

from __future__ import annotations

import logging

from cordata import events
from cordata.core.pool.call import Call
from cordata.core.pool.registry import Child
from cordata.core.pool.state import (
    BUSY,
    GONE,
    INITIALIZING,
    READY,
    RESTARTING,
    STARTING,
    TERMINATING,
    UNHEALTHY,
    State,
)
from cordata.log import fields, logger
from cordata.pool.server.hub import Hub

log = logger("cordata.pool")

_EVENTS = {
    STARTING: events.POOL_CHILD_STARTING,
    INITIALIZING: events.POOL_CHILD_INITIALIZING,
    READY: events.POOL_CHILD_READY,
    BUSY: events.POOL_CHILD_BUSY,
    UNHEALTHY: events.POOL_CHILD_UNHEALTHY,
    RESTARTING: events.POOL_CHILD_RESTARTING,
    TERMINATING: events.POOL_CHILD_TERMINATING,
    GONE: events.POOL_CHILD_GONE,
}
_TURNS = {(READY, BUSY), (BUSY, READY)}
_SATURATED_EVERY_S = 60.0


class Report:
    """Steps between ready and busy are two a call: counted always, told at debug level only."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._saturated_at = -_SATURATED_EVERY_S
        self._saturated = 0
        self.debug = False
        self.look_at_level()

    def look_at_level(self) -> None:
        """At start, and after a reload."""
        self.debug = log.isEnabledFor(logging.DEBUG)

    def moved(self, child: Child, before: State, to: State) -> None:
        """A step of a child's state."""
        turn = (before, to) in _TURNS
        if turn and not self.debug:
            return
        slot = self._hub.dispatcher.registry.by_worker[child.worker]
        if turn:
            level = logging.DEBUG
        elif to is UNHEALTHY:
            level = logging.WARNING
        elif to is RESTARTING and not (slot.draining or child.retire):
            level = logging.WARNING  # nobody had asked for its end
        else:
            level = logging.INFO
        call = child.call
        known: dict[str, object] = {"command": call.command} if call is not None else {}
        if call is not None:
            known["call_id"] = self.call_id(call)
        log.log(
            level,
            "child %d of worker %s: %s -> %s",
            child.pid,
            child.worker,
            before.value,
            to.value,
            extra=fields(
                _EVENTS[to],
                pool=slot.pool,
                worker=child.worker,
                child_pid=child.pid,
                **{"from": before.value},
                to=to.value,
                **known,
            ),
        )

    def note(self, event: str, call: Call, more: dict[str, object]) -> None:
        """What the dispatcher thinks worth telling."""
        extra: dict[str, object] = {
            "pool": call.pool,
            "call_id": self.call_id(call),
            "command": call.command,
            "request_id": call.request_id,
        }
        child = call.child
        if child is not None:
            extra |= {"worker": child.worker, "child_pid": child.pid}
        match event:
            case "saturated":
                self._saturation(call)
            case "poisoned":
                text = "command %s is refused for a while: it killed %d children in a row"
                limit = self._hub.dispatcher.rules.poison_limit
                of_event = fields(events.POOL_COMMAND_POISONED, **extra)
                log.error(text, call.command, limit, extra=of_event)
            case "killed":
                of_event = fields(events.POOL_CALL_KILLED, **extra, **more)
                log.warning(
                    "call %s of %s does not end: its child is killed (%s)",
                    self.call_id(call),
                    call.command,
                    more.get("reason"),
                    extra=of_event,
                )
            case _:  # its worker tells of a crash
                log.debug("call %s of %s: %s", self.call_id(call), call.command, event)

    def call_id(self, call: Call) -> str:
        """One call, in the lines of manager, worker and child."""
        return f"{self._hub.epoch}-{call.serial}"

    def _saturation(self, call: Call) -> None:
        self._hub.counting.saturated += 1
        self._saturated += 1
        now = self._hub.now
        if now - self._saturated_at < _SATURATED_EVERY_S:
            return
        self._saturated_at = now
        waiting = len(self._hub.dispatcher.waiting[call.pool])
        log.warning(
            "pool %s is full: %d calls wait, %d were refused since the last such line",
            call.pool,
            waiting,
            self._saturated,
            extra=fields(events.POOL_SATURATED, pool=call.pool, waiting=waiting),
        )
        self._saturated = 0
