"""What a worker says of its child: to the manager in frames, to the journal in lines."""

from __future__ import annotations

import os
import signal
from typing import Literal

from cordata import events
from cordata.core.pool.message import Hello
from cordata.core.pool.order import ChildEvent, Failed
from cordata.core.pool.page import Hand
from cordata.core.pool.spec import ChildSpec
from cordata.log import fields, logger
from cordata.pool.fingerprint import start_of
from cordata.pool.worker.process import ChildProcess, Exit

log = logger("cordata.pool")

#: Of what a child says of its start, for the manager: it is shown in one line.
_LINE = 300

Step = Literal["started", "exited", "unhealthy", "warm", "due", "retired", "measured"]


def hello(spec: ChildSpec) -> Hello:
    """Who dials."""
    return Hello(
        role="worker",
        name=spec.worker,
        pid=os.getpid(),
        start=start_of(),
        inv=spec.inv,
        cmds=list(spec.commands),
    )


def step(child: ChildProcess, ev: Step, *, why: str = "") -> ChildEvent:
    """A child that lives did, or is to do, this."""
    hand = child.hand()
    return ChildEvent(
        ev,
        pid=child.pid,
        start=child.start,
        why=why,
        n=hand.serial,
        run=hand.busy,
        rss=child.rss_bytes(),
    )


def holds(child: ChildProcess, hand: Hand, now: float) -> ChildEvent:
    """A child that is lent has had this call of its client for a while."""
    return ChildEvent(
        "holds",
        pid=child.pid,
        start=child.start,
        n=hand.serial,
        run=True,
        c=hand.command[:200],
        age=max(0.0, now - hand.started),
        d=max(0.0, hand.deadline - now),
    )


def exited(child: ChildProcess, end: Exit) -> ChildEvent:
    """A child is dead. `why` is empty only when it died by itself."""
    return ChildEvent(
        "exited",
        pid=child.pid,
        start=child.start,
        why=end.why,
        code=end.code,
        sig=end.signal,
        lines=list(end.lines),
        n=end.hand.serial,
        run=end.hand.busy,
        c=end.hand.command[:200],
        lent=end.hand.untold,
        f=end.hand.failed,
        m=_start_error(child, end),
    )


def unborn(error: OSError) -> ChildEvent:
    """There is no child at all: the machine, or a limit, lets no process start."""
    why = f"no process could be started: {error.strerror or error}"
    return ChildEvent("exited", pid=0, start=0, why="init", m=why[:_LINE])


def _start_error(child: ChildProcess, end: Exit) -> str:
    """Why it was never warm, in one line; "": it was, or it ended as it was asked to."""
    if child.watch.up or end.why == "stop":
        return ""
    if child.start_error:
        return " ".join(child.start_error.split())[:_LINE]
    if end.why == "init":
        return "it was not warm within init_timeout_s"
    return f"it ended {_how(end)} before it was warm"


def mourn(worker: str, child: ChildProcess, end: Exit, *, epoch: str) -> None:
    """A child's end, in the journal: an error when it died by itself, a warning when killed."""
    extra: dict[str, object] = {"worker": worker, "child_pid": child.pid, "reason": end.why}
    if end.code is not None:
        extra["exit_status"] = end.code
    if end.hand.busy:
        extra["call_id"] = f"{epoch}-{end.hand.serial}"
    where = " in a call" if end.hand.busy else ""
    if end.why == "stop" and (end.signal is None or not child.watch.up):
        log.debug("child %d ended as it was asked to", child.pid, extra=fields(**extra))
    elif end.why == "init" and end.signal is None:
        log.warning("child %d ended before it was warm", child.pid, extra=fields(**extra))
    elif end.why:
        log.warning("child %d was killed%s: %s", child.pid, where, end.why, extra=fields(**extra))
    else:
        # Not what it said last: errors are mailed, and its lines are in the journal with its call.
        log.error(
            "child %d of worker %s ended%s %s",
            *(child.pid, worker, where, _how(end)),
            extra=fields(events.POOL_CHILD_CRASHED, **extra),
        )


def lament(worker: str, child: ChildProcess, failed: Failed) -> None:
    """A child could not warm up: its traceback, line by line."""
    extra = fields(events.POOL_CHILD_CRASHED, worker=worker, child_pid=child.pid, reason="init")
    log.error("child %d could not warm up: %s", child.pid, failed.m, extra=extra)
    for line in failed.trace.splitlines():
        log.error("%s", line, extra=extra)


def _how(end: Exit) -> str:
    return f"with status {end.code}" if end.signal is None else f"by {_name(end.signal)}"


def _name(number: int) -> str:
    """`SIGSEGV`, or `signal 40` for one that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
