"""What the dispatcher decides, done: frames to children, workers and clients, lines in the log."""

from __future__ import annotations

from cordata.core.pool.call import Call
from cordata.core.pool.codec import encode
from cordata.core.pool.copies import drop, send
from cordata.core.pool.limits import Failure
from cordata.core.pool.message import Cancel
from cordata.core.pool.order import (
    Kill,
    News,
    Retire,
    Run,
    SessionCopy,
    Skip,
    TakeBack,
)
from cordata.core.pool.registry import Child
from cordata.core.pool.shelf import Session
from cordata.core.pool.state import State
from cordata.errors import FrameTooLarge
from cordata.pool.server.hub import Hub
from cordata.pool.server.kept import globals_for
from cordata.pool.server.report import Report


class LinkEffects:
    """`hub` is set right after both exist: each needs the other."""

    hub: Hub
    report: Report

    def run(self, child: Child, call: Call, session: Session | None) -> Failure | None:
        """The `run` frame, with what the child has to hear of session and globals."""
        hub, link = self.hub, child.conn
        now = hub.now
        run = Run(
            id=call.id,
            n=call.serial,
            command=call.command,
            payload=call.payload,
            d=max(call.deadline - now, 0.0),
            g=hub.dispatcher.rules.kill_grace_s,
            credits=call.credits,
            request_id=call.request_id,
            o=call.order,
        )
        forget: list[str] = []
        if session is not None:
            run.s, forget = send(child, session)
            run.f = forget
        shared = hub.globals
        if child.globals_version != shared.version:
            run.gl = globals_for(hub, child)
        try:
            frames = _frames_of(run, link.max_bytes)
        except FrameTooLarge as error:
            if session is not None:  # it heard nothing of this
                child.stale.extend(forget)
                drop(child, call.session)
            return Failure(error.code, str(error), error.data)
        child.globals_version = shared.version
        for frame in frames:
            link.send(frame)
        hub.counting.wait_ms.add((now - call.enqueued) * 1000)
        return None

    def fail(self, call: Call, failure: Failure) -> None:
        """Answer the caller, if there is one."""
        if call.client is not None:
            call.client.fail(call, failure)

    def cancel(self, child: Child, call: Call) -> None:
        """Tell the child; what it still streams goes nowhere, so nothing holds it up."""
        if child.conn is not None:
            child.conn.peer.hold(False)
            child.conn.say(Cancel(call.id, n=call.serial))

    def skip(self, child: Child, call: Call) -> None:
        """Tell the child, which looks between two calls."""
        if child.conn is not None:
            child.conn.say(Skip(call.serial))

    def take_back(self, child: Child) -> None:
        """Ask its worker, since the child itself is in a call."""
        slot = self.hub.dispatcher.registry.by_worker.get(child.worker)
        if slot is not None and slot.conn is not None:
            slot.conn.say(TakeBack(child.pid, child.start, child.order))

    def recall(self, child: Child) -> None:
        """Its client is told by the end of their socket."""
        if child.loan is not None:
            self.hub.lending.recall(child.loan)

    def kill(self, child: Child, call: Call, why: str) -> None:
        """Ask its worker, which looks whether it still has this call in hand."""
        slot = self.hub.dispatcher.registry.by_worker.get(child.worker)
        if slot is not None and slot.conn is not None:
            slot.conn.say(Kill(child.pid, child.start, call.serial, why))

    def retire(self, child: Child) -> None:
        """Ask its worker to let it go."""
        slot = self.hub.dispatcher.registry.by_worker.get(child.worker)
        if slot is not None and slot.conn is not None:
            slot.conn.say(Retire(child.pid, child.start))

    def hang_up(self, child: Child) -> None:
        """What it still says over this connection would be nobody's."""
        if child.conn is not None:
            child.conn.abort()

    def moved(self, child: Child, before: State, to: State) -> None:
        """A step of a child."""
        self.report.moved(child, before, to)

    def note(self, event: str, call: Call, **fields: object) -> None:
        """Something worth a line."""
        self.report.note(event, call, fields)


def _frames_of(run: Run, max_bytes: int) -> list[bytes]:
    """One; or several, where payload, session and globals are too large for one. Raises:
    FrameTooLarge.
    """
    try:
        return [encode(run, max_bytes=max_bytes)]
    except FrameTooLarge:
        news: list[News] = []
        if run.gl is not None:
            news.append(News(gl=run.gl))
            run.gl = None
        if run.s is not None and run.s.full is not None:
            news.append(News(s=run.s, f=run.f))
            run.s, run.f = SessionCopy(id=run.s.id, v=run.s.v, wk=run.s.wk), []
        if not news:
            raise
        return [encode(one, max_bytes=max_bytes) for one in (*news, run)]
