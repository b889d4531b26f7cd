"""The pool of a test: the client behind `ctx.pool`, which runs commands in the test's process.

InlinePool (client) -> InlineEngine (deadlines) -> CommandRunner, as in a child, in one thread
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any

from cordata.app import App
from cordata.config import Config
from cordata.context_factory import command_options, pools_of
from cordata.errors import (
    CallCancelled,
    ChildCrashed,
    CommandUnknown,
    DeadlineExceeded,
    PoolClosed,
    PoolError,
)
from cordata.pool.child.command_runner import CommandRunner
from cordata.pool.client.call import Call, CallRunner
from cordata.pool.client.client import Client
from cordata.pool.client.deadlines import Deadlines
from cordata.pool.client.values import unpack
from cordata.pool.shared import protocol
from cordata.pool.shared.paths import Place
from cordata.pool.shared.sessions import SessionStore, answer
from cordata.pool.shared.spec import ChildSpec
from cordata.services.pool_child import limits_of


class InlinePool(Client):
    """A Client without child processes: `@app.child_init` and commands run in one thread, one call
    after another, with the payloads, sessions, errors and streams of a pool.

    Sessions expire by the test's clock, deadlines by real time. Output of commands is the test's
    output. Nothing can be killed: a command that hangs blocks later ones, and a command that ends
    its process ends the test.
    """

    def __init__(self, app: App, config: Config, now_us: Callable[[], int]) -> None:
        self._inline = InlineEngine(app, config, now_us)
        super().__init__(pools=pools_of(config))

    def crash(self, command: str, times: int = 1) -> None:
        """Simulate a crash in the next `times` calls of a command."""
        self._inline.crashes[command] += times

    async def close(self) -> None:
        """End every call, wait for the running command."""
        if not self._inline.closed:
            self._inline.close()
            await asyncio.to_thread(self._inline.join)

    def _new_runner(self) -> CallRunner:
        return self._inline

    async def _ask(
        self, request: protocol.SessionRequest | protocol.GlobalRequest
    ) -> protocol.Reply:
        if self._inline.closed:
            raise PoolClosed("the client is closed")
        return answer(self._inline.store, request)


class InlineEngine:
    """Replaces the children: runs one call after another, with the same rules for sessions."""

    def __init__(self, app: App, config: Config, now_us: Callable[[], int]) -> None:
        self.options = command_options(app)
        pool = config.pool
        self._retries = pool.retries
        limits = limits_of(pool)
        path = config.paths.state / "pool" / "sessions.db"
        self.store = SessionStore(path, limits, now_us=now_us)
        self._spec = ChildSpec(
            place=Place("0"),
            pool="default",
            directory="",
            path=(),
            commands={name: command.at for name, command in app.commands.items()},
            inits=tuple(app.child_inits),
            max_frame_bytes=pool.max_frame_bytes,
            unread_timeout_s=pool.unread_timeout_s,
            sessions=os.fspath(path),
            session_limits=limits,
        )
        self._runner: CommandRunner | None = None
        #: Of the calls that are not over.
        self._callers: dict[Call, _Caller] = {}
        self._last = 0
        self._deadlines: Deadlines[Call] = Deadlines(self._due)
        self.loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "pool")
        #: Number of crashes still to simulate, by command.
        self.crashes: Counter[str] = Counter()
        self.closed = False

    def submit(self, call: Call) -> None:
        """Run it after those before it, or answer it. Raises: PoolClosed."""
        if self.closed:
            raise PoolClosed("the client is closed")
        self._last += 1
        call.sequence = self._last
        if call.command not in self.options:
            call.fail(CommandUnknown(f"the application has no command {call.command!r}"))
            return
        if self._crashes(call):
            text = f"the child that ran {call.command!r} died of SIGKILL"
            call.fail(ChildCrashed(text, signal=9, worker="0"))
            return
        self._deadlines.set(call, call.deadline)
        caller = self._callers[call] = _Caller(call, self.loop)
        ending = self.loop.run_in_executor(self._thread, self._run, call, caller)
        ending.add_done_callback(partial(self._ended, call))

    def cancel(self, call: Call, *, hard: bool) -> None:
        """Notify the command; nothing is killed, also with `hard`."""
        self._deadlines.clear(call)
        if call in self._callers:
            self._callers[call].leave()

    def credit(self, call: Call, count: int) -> None:
        """Allow the stream to send `count` more parts."""
        if call in self._callers:
            self._callers[call].grant(count)

    def close(self) -> None:
        """End every call with PoolClosed."""
        if self.closed:
            return
        self.closed = True
        for call in self._callers:
            self.cancel(call, hard=False)
            call.fail(PoolClosed("the client was closed"))
        self._deadlines.close()

    def join(self) -> None:
        """Wait for the running command. Blocking; after `close`."""
        self._thread.submit(self._end)
        self._thread.shutdown()
        self.store.close()

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.close()

    def _crashes(self, call: Call) -> bool:
        """Whether simulated crashes end the call; one that is idempotent outlives some of them."""
        while self.crashes[call.command] > 0:
            self.crashes[call.command] -= 1
            if not call.may_run_again(self.options[call.command], self._retries):
                return True
            call.deaths += 1
        return False

    def _run(self, call: Call, caller: _Caller) -> bytes:
        """Run the call, in the thread; returns its last packet. Raises: what importing the commands
        or `@app.child_init` raises.
        """
        if not caller.connect():
            return protocol.encode(protocol.NotRun(1, "revoked"))
        if self._runner is None:
            self._runner = CommandRunner(self._spec, self.store)
        packet = protocol.Call(
            number=1,
            command=call.command,
            arguments=unpack(call.arguments),
            keywords=unpack(call.keywords),
            deadline=call.deadline,
            id=call.sequence,
            session=call.session,
            request_id=call.request_id,
            credits=0 if call.stream is None else call.stream.credits,
            traceparent=call.traceparent,
        )
        session = self._runner.prepare(packet, monotonic())
        if isinstance(session, protocol.Packet):
            return protocol.encode(session)
        caller.begun = True
        return self._runner.run(packet, session, caller)[0]

    def _ended(self, call: Call, ending: asyncio.Future[bytes]) -> None:
        error = ending.exception()
        if error is not None:
            call.fail(error if isinstance(error, Exception) else ChildCrashed(repr(error)))
        else:
            [message] = protocol.from_child.decode(protocol.batch([ending.result()]))
            if isinstance(message, protocol.Result | protocol.End | protocol.Failure):
                call.answer(message)
            elif isinstance(message, protocol.NotRun) and message.reason == "deadline":
                self._due(call)  # its timer is late
            else:
                call.fail(PoolError(f"the call did not run: {message}"))
        self._callers.pop(call).close()
        self._deadlines.clear(call)

    def _due(self, call: Call) -> None:
        caller = self._callers[call]
        caller.leave()
        call.fail(DeadlineExceeded("the call's deadline passed", ran=caller.begun))


class _Caller:
    """The caller of a command, for the command's thread. The event loop writes to a socket pair: a
    byte for each credit, the end of the stream when the caller leaves.
    """

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        self.client = 0
        self.credits = 0 if call.stream is None else call.stream.credits
        #: Its command runs, or has run.
        self.begun = False
        self._call, self._loop = call, loop
        self._left = False
        #: The ends of the command and of the loop. A call that waits has none: there may be many.
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def grant(self, count: int) -> None:
        """Add credit for `count` parts, which the reader took."""
        if self._pair is not None:
            self._pair[1].send(bytes(count))

    def leave(self) -> None:
        """The caller has left."""
        self._left = True  # first: `connect` reads it after it has made the pair
        if self._pair is not None:
            self._pair[1].shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """The call is over."""
        for one in self._pair or ():
            one.close()

    # In the command's thread:

    def connect(self) -> bool:
        """Get ready for the command. Returns whether the caller still waits."""
        self._pair = socket.socketpair()
        self._pair[0].setblocking(False)
        return not self._left

    def fileno(self) -> int:
        """A descriptor that becomes readable after a credit, and when the caller leaves."""
        assert self._pair is not None
        return self._pair[0].fileno()

    def poll_cancelled(self) -> bool:
        """Add the credits that have arrived. Whether the caller has left."""
        assert self._pair is not None
        with contextlib.suppress(BlockingIOError):
            self.credits += len(self._pair[0].recv(4096))
        return self._left

    def wait(self, event: int, timeout_s: float) -> bool:
        """Wait until a credit arrives or the caller leaves; False: neither within the timeout."""
        poll = select.poll()
        poll.register(self.fileno(), event)
        return bool(poll.poll(max(0.0, timeout_s) * 1000.0))

    def send_chunk(self, data: bytes) -> None:
        """Pass one part of the stream to the caller. Raises: CallCancelled if the caller left."""
        if self._left:
            raise CallCancelled
        [chunk] = protocol.from_child.decode(protocol.batch([data]))
        assert isinstance(chunk, protocol.Chunk)
        self._loop.call_soon_threadsafe(self._add, chunk.value)

    def _add(self, value: Any) -> None:
        if self._call.stream is not None and not self._call.done():
            self._call.stream.add(value)
