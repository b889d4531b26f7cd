"""One connection: bytes to frames and back; what the frames mean is its peer's business.

No answer leaves before the turn of the loop ends (hub.py). A client that does not read is not read
from either; one that goes on like this is closed. Children and workers are read from always: what
they have to say ends the calls that keep them from reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import cast

from cordata import clock
from cordata.core.frame import MAX_FRAME, Splitter, TooLarge
from cordata.core.pool.codec import encode
from cordata.core.pool.message import ErrorFrame, Message
from cordata.errors import ProtocolError
from cordata.log import fields, logger
from cordata.pool import descriptors
from cordata.pool.fingerprint import other_end
from cordata.pool.server.hub import TURN_BYTES, Hub
from cordata.pool.server.peer import NOBODY, Peer, Stranger

log = logger("cordata.pool")

#: All connections read into this one: what is not whole is copied before the next one reads.
_BUFFER = memoryview(bytearray(256 * 1024))
#: Above it what waits to be sent is copied by the kernel alone.
_JOIN_BYTES = 64 * 1024
#: So much may wait for a peer that does not read before it is not read from any more.
HIGH_BYTES = 1 << 20


class Link(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(self, hub: Hub, stranger: type[Stranger]) -> None:
        self.hub = hub
        self.peer: Peer = stranger(self)
        #: Of the process at the other end; pid 0 is in another name space.
        self.pid = self.uid = -1
        #: The largest frame that the other side takes.
        self.max_bytes = MAX_FRAME
        self.closing = False
        #: It was ended by us, and not by the other side.
        self.cut = False
        #: Another descriptor of the socket, to read the rest after the transport gave it up.
        self._rest = -1
        self._splitter = Splitter(hub.limits.max_frame_bytes)
        #: A worker or a child: it pays for nobody's half frames.
        self.trusted = False
        self._held = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        #: Frames that wait for the next turn, or until what was answered is read.
        self._later: list[bytes | TooLarge] = []
        self._pauses = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted. Nothing is believed before its hello."""
        self._transport = cast(asyncio.Transport, transport)
        if self.hub.over:
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=HIGH_BYTES)
        self.pid, self.uid = other_end(transport.get_extra_info("socket"))
        if not self.hub.enter(self, ours=self.ours):
            self.refuse("saturated", "as many connections as may be", retry_after_s=1.0)

    @property
    def ours(self) -> bool:
        """Whether the other side is of the manager's own user, or root's."""
        return self.uid in (0, os.geteuid())

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        hub = self.hub
        hub.now = clock.monotonic()
        frames = self._take(_BUFFER[:nbytes])
        held = 0 if self.closing or self.trusted else self._splitter.pending_bytes
        if held != self._held:
            self._held = held
            oldest = hub.hold(self, held, fresh=frames > 0)
            if oldest is not None:
                oldest.refuse("saturated", "too many large frames at a time", retry_after_s=1.0)
                oldest.abort()
        hub.arm()

    def _take(self, data: memoryview | bytes, *, rest: bool = False) -> int:
        """What the bytes say; gives how many frames that was."""
        counting = self.hub.counting
        counting.bytes_in += len(data)
        frames: list[bytes | TooLarge] = []
        try:
            frames = self._splitter.feed(data)
            counting.frames_in += len(frames)
            self._take_each(frames, rest=rest)
        except ProtocolError as error:
            counting.protocol_errors += 1
            self.refuse("protocol", str(error))
        return len(frames)

    def _take_each(self, frames: list[bytes | TooLarge], *, rest: bool = False) -> None:
        hub = self.hub
        for at, frame in enumerate(frames):
            if self.closing and not rest:
                break
            much = hub.turn_bytes > (TURN_BYTES if self._out else 4 * TURN_BYTES)
            if much and not self.trusted:
                self._later += frames[at:]
                self.pause()
                hub.later.append(self)
                break
            if type(frame) is bytes:
                self.peer.take(frame)
            else:
                self._drop(cast(TooLarge, frame))

    def go_on(self) -> None:
        """Take what was left for later, unless what was answered before is not read."""
        if self._later and self not in self.hub.blocked:
            later, self._later = self._later, []
            self.resume()
            try:
                self._take_each(later)
            except ProtocolError as error:
                self.hub.counting.protocol_errors += 1
                self.refuse("protocol", str(error))
            self.hub.arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, from whichever side."""
        hub = self.hub
        self.cut = self.cut or self.closing
        self.closing = True
        self._out.clear()
        self._later.clear()
        hub.leave(self)
        if hub.over:
            self.forget()
            return
        hub.now = clock.monotonic()
        self.peer.lost()
        # Each refers to us, and the garbage collector comes after hours.
        self.peer, self._transport = NOBODY, None
        hub.arm()
        if hub.stopping and not hub.running():
            hub.idle.set()

    def keep(self) -> None:
        """What comes is to be read to the end, however the connection ends: see `read_rest`."""
        if self._transport is not None:
            self._rest = os.dup(self._transport.get_extra_info("socket").fileno())

    def read_rest(self) -> None:
        """The other side is gone: take what it said before. A write that failed hides it, else."""
        with contextlib.suppress(OSError):  # it is the end, or there is nothing for now
            while self._rest >= 0 and (data := os.read(self._rest, len(_BUFFER))):
                self._take(data, rest=True)

    def forget(self) -> None:
        """There is nothing to read any more."""
        if self._rest >= 0:
            os.close(self._rest)
            self._rest = -1

    def pause_writing(self) -> None:
        """The other side does not read."""
        self.hub.blocked[self] = clock.monotonic()
        self.peer.blocked(True)

    def resume_writing(self) -> None:
        """It reads again."""
        self.hub.blocked.pop(self, None)
        self.peer.blocked(False)
        self.go_on()

    def send(self, frame: bytes) -> None:
        """Write at the end of this turn. After the end of the connection: nothing."""
        if self.closing:
            return
        if not self._out:
            self.hub.mark(self)
        self._out.append(frame)
        self._out_bytes += len(frame)
        self.hub.turn_bytes += len(frame)

    def say(self, message: Message) -> None:
        """Send a message."""
        self.send(encode(message))

    def say_now(self, message: Message) -> None:
        """Before whatever others are sent in this turn: transports write in no order. If the
        other side has not read what it was sent before, the message waits behind that.
        """
        if not self.send_with(message, []):
            self.say(message)

    def send_with(self, message: Message, files: list[int]) -> bool:
        """Send a message and file descriptors at once, with all that waited for the turn's end.

        False: the other side has not read what it was sent before, so they could not be sent.
        """
        transport = self._transport
        if self.closing or transport is None:
            return False
        data = b"".join((*self._out, encode(message)))
        sent = descriptors.send(transport, data, files)
        if sent < 0:
            return False
        self.hub.counting.frames_out += len(self._out) + 1
        self.hub.counting.bytes_out += len(data)
        self._out, self._out_bytes = [], 0
        if sent < len(data):
            transport.write(data[sent:])
        return True

    def refuse(self, code: str, text: str, **data: object) -> None:
        """An error that speaks of the connection, then its end."""
        self.hub.counting.refused[code] += 1
        self.say(ErrorFrame(code=code, m=text, data=data))
        self.close()

    def flush(self) -> None:
        """Give the transport what was collected."""
        out, size, transport = self._out, self._out_bytes, self._transport
        if not out or transport is None:
            return
        self._out, self._out_bytes = [], 0
        self.hub.counting.frames_out += len(out)
        self.hub.counting.bytes_out += size
        if len(out) == 1:
            transport.write(out[0])
        elif size < _JOIN_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        if self in self.hub.blocked and self.unread_bytes() > self.hub.limits.unread_bytes:
            self.give_up()

    def close(self) -> None:
        """End the connection when everything is written; nothing is read any more."""
        if not self.closing and self._transport is not None:
            self.flush()
            self.closing = True
            self.hub.ending[self] = clock.monotonic()
            self._transport.close()

    def deafen(self) -> None:
        """Whoever sends from now on is told that nobody reads; what came before is still read, and
        answered, and then the connection ends.
        """
        if not self.closing and self._transport is not None:
            fd = os.dup(self._transport.get_extra_info("socket").fileno())
            with contextlib.suppress(OSError), socket.socket(fileno=fd) as twin:
                twin.shutdown(socket.SHUT_RD)

    def give_up(self) -> None:
        """It reads nothing, and what waits for it is too much."""
        text = "process %d reads nothing, and %d bytes wait for it: its connection is closed"
        log.warning(text, self.pid, self.unread_bytes(), extra=fields(peer_pid=self.pid))
        self.hub.counting.refused["unread"] += 1
        self.abort()

    def abort(self) -> None:
        """End it now."""
        self.closing = True
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Do not read, until as many `resume`."""
        self._pauses += 1
        if self._pauses == 1 and not self.closing and self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """See pause."""
        self._pauses -= 1
        if self._pauses == 0 and not self.closing and self._transport is not None:
            self._transport.resume_reading()

    def unread_bytes(self) -> int:
        """What the other side has not read."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _drop(self, frame: TooLarge) -> None:
        self.hub.counting.too_large += 1
        self.peer.too_large(frame)
        if not frame.skippable:
            self.close()
