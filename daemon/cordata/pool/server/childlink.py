"""A child: the answers to the one call that it has in hand."""

from __future__ import annotations

from cordata.core.frame import TooLarge
from cordata.core.pool.call import RUNNING, Call
from cordata.core.pool.codec import encode, from_child
from cordata.core.pool.globals import UNSURE
from cordata.core.pool.loan import FEATURE
from cordata.core.pool.message import Chunk, Delta, End, ErrorFrame, Hello, Result
from cordata.core.pool.order import Back, Passed, Ready, Returned
from cordata.core.pool.registry import Child
from cordata.errors import FrameTooLarge, ProtocolError, SessionQuotaExceeded
from cordata.pool.server.link import Link


class ChildPeer:
    """Its answers go to the client byte for byte, unless they carry changes of a session."""

    __slots__ = ("_held", "_hub", "_link", "child", "hello")

    def __init__(self, link: Link, hello: Hello) -> None:
        self._link = link
        self._hub = link.hub
        self.hello = hello
        self._held = False
        self.child: Child | None = None

    def join(self) -> None:
        """It is known from now on. An older connection of the same process is no good any more."""
        hub, hello = self._hub, self.hello
        former = hub.dispatcher.registry.by_pid.get((hello.pid, hello.start))
        older = former.conn if former is not None else None
        self.child = hub.dispatcher.child_joined(
            hello.name,
            hello.pid,
            hello.start,
            self._link,
            hub.now,
            commands=hello.cmds,
            spare=hello.spare,
            warm=hello.warm,
        )
        self._link.keep()
        hub.lending.came_back(self.child, able=FEATURE in hello.has)
        if older is not None:
            older.abort()

    def take(self, frame: bytes) -> None:
        """One message. Raises: ProtocolError for what a child does not say."""
        message = from_child.decode(frame)
        child = self.child
        assert child is not None
        if child.stuck:
            self._hub.dispatcher.heard(child, self._hub.now)
        if isinstance(message, Result) or isinstance(message, End):
            call = self._in_hand(message.id)
            self._hub.counting.run_ms.add(message.x / 1000)
            if message.u is None:
                self._answer(child, frame, None, ok=True, run_us=message.x)
            else:
                delta, message.u = message.u, None
                frame = encode(message)
                self._changed(child, call, frame, delta, message.x)
        elif isinstance(message, Chunk):
            self._chunk(self._in_hand(message.id), frame)
        elif isinstance(message, ErrorFrame):
            if message.id is None:
                raise ProtocolError(f"the child complains: {message.m}")
            self._in_hand(message.id)
            self._hub.counting.run_ms.add(message.x / 1000)
            self._answer(child, frame, None, ok=False, run_us=message.x)
        elif isinstance(message, Back):
            self._hub.dispatcher.given_back(child, message.o, self._hub.now)
        elif isinstance(message, Passed):
            self._hub.lending.passed(child, message)
        elif isinstance(message, Returned):
            self._hub.lending.returned(child, message)
        elif isinstance(message, Ready):
            self._hub.dispatcher.child_ready(child, self._hub.now)
        else:
            raise ProtocolError("a second hello")

    def _in_hand(self, id: int) -> Call:
        assert self.child is not None
        call = self.child.call
        if call is None or call.id != id:
            raise ProtocolError(f"an answer to {id}, which is not in hand")
        return call

    def _changed(self, child: Child, call: Call, frame: bytes, delta: Delta, run_us: int) -> None:
        """Session and globals, both or none: what cannot be kept has not been answered well."""
        hub, quota = self._hub, ""
        if delta.gset or delta.gdel:
            try:
                if call.stage is not RUNNING:
                    child.globals_version = UNSURE
                else:
                    hub.sessions.check(call.session, delta, hub.now)
                    hub.globals.change(delta.gset, delta.gdel)
                    hub.lending.tell_globals()
            except SessionQuotaExceeded as error:
                child.globals_version = UNSURE
                quota = str(error)
        self._answer(child, frame, delta, ok=True, quota=quota, run_us=run_us)

    def _answer(
        self,
        child: Child,
        frame: bytes,
        delta: Delta | None,
        *,
        ok: bool,
        quota: str = "",
        run_us: int = 0,
    ) -> None:
        """The child has its next call before the client has its answer."""
        if self._held:
            self.hold(False)
        hub = self._hub
        call = hub.dispatcher.answered(
            child, hub.now, ok=ok, delta=delta, quota=quota, run_us=run_us
        )
        if call is not None and call.client is not None:
            hub.counting.results += ok
            if child.loan is not None and call.session and ok:
                hub.lending.lend_session(child.loan, call.client, call.session)
            call.client.answer(call, frame)

    def _chunk(self, call: Call, frame: bytes) -> None:
        client = call.client
        if call.stage is not RUNNING or client is None:
            return
        self._hub.counting.chunks += 1
        client.chunk(call, frame)
        if client.blocked_now:
            self.hold(True)

    def hold(self, yes: bool) -> None:
        """Do not read what it streams, or read on."""
        if self._held != yes:
            self._held = yes
            if yes:
                self._link.pause()
            else:
                self._link.resume()

    def too_large(self, frame: TooLarge) -> None:
        """In place of a result: the caller hears of it. Of anything else: the end."""
        child, call = self.child, self.child.call if self.child else None
        if child is None or call is None or frame.id != call.id or frame.kind == "chunk":
            raise ProtocolError(f"a frame of {frame.length} bytes from a child")
        limit = self._hub.limits.max_frame_bytes
        text = f"a result of {frame.length} bytes, where {limit} are taken (max_frame_bytes)"
        error = FrameTooLarge(text, length_bytes=frame.length, limit_bytes=limit)
        failure = ErrorFrame(id=call.id, code=error.code, m=text, data={**error.data})
        self._answer(child, encode(failure), None, ok=False)

    def lost(self) -> None:
        """It died, or dials again."""
        child = self.child
        if child is not None and child.conn is self._link:
            self.hear_out()
            self._hub.dispatcher.child_lost(child, self._link, self._hub.now, cut=self._link.cut)
        self._link.forget()

    def hear_out(self) -> None:
        """It is gone: first the answers that it had sent, since what it answered is not run again.

        It gets nothing more meanwhile.
        """
        assert self.child is not None
        if not self._link.cut:
            self.child.lost = True
            self._link.read_rest()

    def blocked(self, yes: bool) -> None:
        """It reads between its calls, and what it says now ends one: it is read from."""
