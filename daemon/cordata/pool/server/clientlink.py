"""A client, or an operator: its calls, and what it asks of sessions and globals."""

from __future__ import annotations

from cordata.core.frame import TooLarge
from cordata.core.pool.call import RUNNING, Call
from cordata.core.pool.codec import UnfitMessage, encode, from_client
from cordata.core.pool.limits import Failure
from cordata.core.pool.loan import FEATURE
from cordata.core.pool.message import (
    Ask,
    Bye,
    CallFrame,
    Cancel,
    Credit,
    ErrorFrame,
    GlobalOp,
    Goaway,
    Hello,
    Message,
    Ping,
    Pong,
    SessionOp,
)
from cordata.errors import FrameTooLarge, ProtocolError
from cordata.pool.server.answers import answer_global, answer_session
from cordata.pool.server.asking import answer_ask
from cordata.pool.server.link import Link
from cordata.pool.server.peer import too_large

#: Of one stream, given and not used.
_MOST_CREDITS = 65_536

_OPERATORS = "for operators only: Client(path, operator=True), as the pool's own user or root"


class ClientPeer:
    """Its calls by its own numbers; a number is free again with its last answer."""

    __slots__ = (
        *("_fingerprint", "_hub", "_link", "_operator", "blocked_now", "borrows", "calls"),
        "leaving",
    )

    def __init__(self, link: Link, hello: Hello) -> None:
        self._link = link
        self._hub = link.hub
        self._operator = hello.role == "operator"
        #: That of a child: its commands call others.
        self._fingerprint = (hello.pid, hello.start)
        #: It can use a child that is lent to it.
        self.borrows = FEATURE in hello.has
        self.calls: dict[int, Call] = {}
        #: It said bye.
        self.leaving = False
        #: It does not read.
        self.blocked_now = False

    def take(self, frame: bytes) -> None:
        """One message. What is none is answered; the connection goes on."""
        try:
            message = from_client.decode(frame)
        except UnfitMessage as error:
            self._hub.counting.protocol_errors += 1
            self._link.say(ErrorFrame(id=error.id, code="protocol", m=str(error)))
            return
        kind = type(message)
        if kind is CallFrame:
            self._call(message, frame)  # type: ignore[arg-type]
        elif kind is Credit:
            self._credit(message)  # type: ignore[arg-type]
        elif kind is Cancel:
            call = self.calls.get(message.id)  # type: ignore[union-attr]
            if message.n:  # type: ignore[union-attr]
                self._hub.lending.kill(self, message.n)  # type: ignore[union-attr]
            elif call is not None:
                self._hub.dispatcher.cancel(call, self._hub.now, hard=message.hard)  # type: ignore[union-attr]
        else:
            self._other(message)

    def _call(self, message: CallFrame, frame: bytes) -> None:
        hub = self._hub
        if message.id in self.calls:
            hub.counting.protocol_errors += 1
            self._link.say(ErrorFrame(code="protocol", m=f"call {message.id} is under way"))
            return
        if self.leaving:
            self._link.say(ErrorFrame(id=message.id, code="closed", m="you said bye"))
            return
        hub.counting.calls += 1
        # It was at a child on loan before, or another manager had it.
        hub.dispatcher.retries += message.attempts > 0
        # Of another name space the process is not known: each connection is a client there.
        source = self._link.pid or id(self._link)
        call = hub.dispatcher.call_of(
            message, client=self, source=source, size_bytes=len(frame), now=hub.now
        )
        self.calls[message.id] = call
        own = hub.dispatcher.registry.by_pid.get(self._fingerprint)
        call.nested = own is not None and own.pool == call.pool
        hub.lending.called(self, message.command)
        if message.at:
            call.wanted = hub.lending.child_of(self, message.at)
        hub.dispatcher.offer(call, hub.now)

    def _credit(self, message: Credit) -> None:
        call = self.calls.get(message.id)
        if call is None or not call.credits:
            return
        if call.credits - call.parts > _MOST_CREDITS:
            # A child reads them between its parts only: they would pile up here.
            raise ProtocolError(f"more than {_MOST_CREDITS} credits for call {call.id}")
        call.moved_at = self._hub.now
        # Also counted: a stream that has not begun may have to begin at another child.
        call.credits += message.n
        if call.stage is RUNNING and call.child is not None and call.child.conn is not None:
            call.child.conn.say(message)

    def _other(self, message: Message) -> None:
        hub = self._hub
        answer: Message
        match message:
            case SessionOp():
                answer = answer_session(hub.sessions, message, hub.now)
            case GlobalOp():
                answer = answer_global(hub.globals, message)
                hub.lending.tell_globals()
            case Ping():
                answer = Pong(message.id)
            case Ask() if self._operator:
                answer = answer_ask(hub, message)
            case Ask():
                answer = ErrorFrame(id=message.id, code="forbidden", m=_OPERATORS)
            case Bye():
                self.leaving = True
                self._leave()
                return
            case _:
                raise ProtocolError("a second hello")
        self._send(answer)

    def _send(self, answer: Message) -> None:
        try:
            self._link.send(encode(answer, max_bytes=self._link.max_bytes))
        except FrameTooLarge as error:
            self._untaken(answer.id, error.length_bytes)  # type: ignore[attr-defined]

    def _untaken(self, id: int, length_bytes: int) -> None:
        """In place of an answer that is larger than this client said that it takes."""
        limit = self._link.max_bytes
        text = f"the answer has {length_bytes} bytes, you take {limit}"
        data = {"length_bytes": length_bytes, "limit_bytes": limit}
        self._link.say(ErrorFrame(id=id, code=FrameTooLarge.code, m=text, data=data))

    def say(self, message: Message) -> None:
        """What is no answer to what it asked here."""
        self._send(message)

    def send_with(self, message: Message, files: list[int]) -> bool:
        """See Link.send_with."""
        return self._link.send_with(message, files)

    @property
    def ours(self) -> bool:
        """Whether it is of the manager's own user, or root's."""
        return self._link.ours

    def answer(self, call: Call, frame: bytes) -> None:
        """The last frame of a call, as its child sent it."""
        del self.calls[call.id]
        if len(frame) - 4 > self._link.max_bytes:
            self._untaken(call.id, len(frame) - 4)
        else:
            self._link.send(frame)
        if self.leaving:
            self._leave()

    def fail(self, call: Call, failure: Failure) -> None:
        """The end of a call by the manager's own word."""
        if self.calls.pop(call.id, None) is None:
            return
        self._link.say(
            ErrorFrame(id=call.id, code=failure.code, m=failure.text, data=dict(failure.data))
        )
        if self.leaving:
            self._leave()

    def chunk(self, call: Call, frame: bytes) -> None:
        """A part of a stream. Its child waits while this client does not read."""
        # Parts that were passed on cannot be taken back, so the call is not run again.
        call.idempotent = False
        call.parts += 1
        call.moved_at = self._hub.now
        self._link.send(frame)

    def unread_since(self, call: Call) -> float | None:
        """Since when the stream's child waits for this client to read; None: it does not."""
        waits = self.blocked_now or call.parts >= call.credits
        return call.moved_at if waits and call.parts else None

    def go_away(self) -> None:
        """The manager stops."""
        self._link.say(Goaway(why="stop"))

    def too_large(self, frame: TooLarge) -> None:
        """Answered with its number, if that could be read."""
        self._link.say(too_large(frame, self._hub.limits.max_frame_bytes))

    def lost(self) -> None:
        """Nobody is there to be answered: what waits never runs, what runs is told."""
        self._hub.lending.left(self)
        calls, self.calls = list(self.calls.values()), {}
        if self.blocked_now:
            self._children(calls, pause=False)
        self._hub.dispatcher.client_gone(calls, self._hub.now)

    def blocked(self, yes: bool) -> None:
        """It is not read from, and children that stream to it wait with it."""
        self.blocked_now = yes
        if yes:
            self._link.pause()
        else:
            self._link.resume()
        self._children(list(self.calls.values()), pause=yes)

    def _children(self, calls: list[Call], *, pause: bool) -> None:
        for call in calls:
            child = call.child
            if child is not None and child.conn is not None and call.credits:
                child.conn.peer.hold(pause)

    def _leave(self) -> None:
        if not self.calls:
            self._link.close()
