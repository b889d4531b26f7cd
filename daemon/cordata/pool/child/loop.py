"""The child's loop: one call at a time from the manager, and both their words between the calls.

```
  dial --> hello --> (imports, inits) --> ready --> run --> answer --> run ...
   ^                                                          |
   '---- end of file: end the call, drop its answer ----------'
```
"""

from __future__ import annotations

import os
import select
import socket
from time import monotonic

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, worker_to_child
from cordata.core.pool.message import ErrorFrame, Message, Ping, Pong
from cordata.core.pool.order import (
    Adopt,
    Back,
    Due,
    LentRun,
    News,
    Run,
    Stop,
    ToBorrowed,
    ToChild,
)
from cordata.core.pool.page import Writer
from cordata.core.pool.spec import ChildSpec
from cordata.errors import ProtocolError
from cordata.pool.child.calling import Calling
from cordata.pool.child.connection import Connection
from cordata.pool.child.output import Output
from cordata.pool.child.session import Session

#: While calls lie here, what is said meanwhile is read so often: two system calls for each of the
#: shortest calls cost more than the calls.
_LOOK_S = 0.001


class Channel:
    """The second channel: to the worker, without which there is no child."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self._splitter = Splitter()

    def send(self, message: Message) -> None:
        """Raises: nothing; when nobody is there, this process ends."""
        try:
            self.socket.sendall(encode(message))
        except OSError:
            os._exit(1)

    def read(self) -> list[Ping | Stop | Adopt]:
        """What the worker said; this process ends when it is gone."""
        try:
            data = self.socket.recv(4096)
            if not data:
                os._exit(1)
            frames = [f for f in self._splitter.feed(data) if not isinstance(f, TooLarge)]
            return [worker_to_child.decode(frame) for frame in frames]
        except (OSError, ProtocolError):
            os._exit(1)


class Loop:
    """See the module."""

    def __init__(
        self,
        spec: ChildSpec,
        page: Writer,
        channel: Channel,
        connection: Connection,
        calling: Calling,
        output: Output,
    ) -> None:
        self._max_calls = spec.max_calls
        self._page = page
        self._channel = channel
        self._connection = connection
        self._borrower = connection.borrower
        self._calling = calling
        self._output = output
        self._poll = select.poll()
        self._poll.register(channel.socket, select.POLLIN)
        #: Descriptor of the connection that is polled; -1: none.
        self._polled = -1
        #: The same of the loan's socket.
        self._lent_fd = -1
        #: Polls the manager alone.
        self._manager = select.poll()
        #: When to look for words of both again, though there is a call to be run.
        self._look_at = 0.0
        self._calls = 0
        self._stopping = False

    def run(self) -> None:
        """Until the worker says stop."""
        messages, lent = self._connection.messages, self._borrower.messages
        while True:
            if not (messages or lent) or monotonic() >= self._look_at:
                self._look()
                if self._stopping:
                    self._return()
                    return
            if messages:
                self._work(messages.popleft())
            elif self._borrower.fresh:
                self._hear_manager_out()
            elif lent:
                self._work_lent(lent.popleft())

    def _look(self) -> None:
        """Wait, if nothing lies here, and read. The worker first: a stop goes before a call."""
        connection, borrower = self._connection, self._borrower
        self._end_loan()
        self._poll_lent()
        timeout_ms = self._dial()
        if connection.messages or borrower.messages:
            timeout_ms = 0
        elif borrower.tell_at is not None:
            left_ms = self._tell(borrower.tell_at)
            timeout_ms = left_ms if timeout_ms is None else min(timeout_ms, left_ms)
        ready = {fd for fd, _ in self._poll.poll(timeout_ms)}
        if self._channel.socket.fileno() in ready:
            self._hear()
            ready.discard(self._channel.socket.fileno())
        if ready and not self._stopping:
            if self._lent_fd in ready:
                borrower.read()
            if self._polled in ready:
                connection.read()  # also a word on the calls that lie here
            self._end_loan()
        self._look_at = monotonic() + _LOOK_S

    def _tell(self, at: float) -> float:
        """Of calls that the client had run, when it is time; milliseconds until it is."""
        now = monotonic()
        if now >= at:
            self._connection.send(encode(self._borrower.tell(now)))
            self._page.told()
        return max(1.0, (at - now) * 1000.0)

    def _hear_manager_out(self) -> None:
        """What it said before the client sent what was read goes before that."""
        connection = self._connection
        self._borrower.fresh = False
        while connection.socket is not None and (connection.amid_frame or self._manager.poll(0)):
            connection.read()
        self._end_loan()

    def _end_loan(self) -> None:
        """If it is over. The manager's word may have come in a call, and nothing else comes."""
        if self._connection.recalled or self._borrower.gone:
            self._return()

    def _return(self) -> None:
        """The child is its client's no more, and the manager knows all."""
        self._connection.end_loan()
        self._calling.end_loan()
        self._page.told()

    def _poll_lent(self) -> None:
        """See that the socket of the loan is polled, if there is one."""
        sock = self._borrower.socket
        fd = -1 if sock is None else sock.fileno()
        if fd != self._lent_fd:
            if self._lent_fd != -1:
                self._poll.unregister(self._lent_fd)
            if fd != -1:
                self._poll.register(fd, select.POLLIN)
            self._lent_fd = fd

    def _dial(self) -> float | None:
        """See that there is a connection, or when to try again; and that it is polled."""
        connection, wait_s = self._connection, None
        if connection.socket is None:
            wait_s = connection.dial_at - monotonic()
            if wait_s <= 0:
                wait_s = None if connection.dial() else connection.dial_at - monotonic()
                self._page.renew()
        fd = -1 if connection.socket is None else connection.socket.fileno()
        # One that was lost is no descriptor any more; its number may be the next one's.
        if fd != self._polled or fd == -1:
            for poll in (self._poll, self._manager):
                if self._polled != -1:
                    poll.unregister(self._polled)
                if fd != -1:
                    poll.register(fd, select.POLLIN)
            self._polled = fd
        return None if wait_s is None else max(0.0, wait_s) * 1000.0

    def _hear(self) -> None:
        for message in self._channel.read():
            if isinstance(message, Ping):
                self._channel.send(Pong(id=message.id))
            elif isinstance(message, Stop):
                self._stopping = True
            else:
                self._connection.adopted = True

    def _work(self, message: ToChild) -> None:
        if isinstance(message, Run):
            self._serve(message)
        elif isinstance(message, News):
            self._calling.note(message)
        # A credit or cancel that comes now is for a call that was answered meanwhile.
        if not self._connection.messages:
            self._connection.skipped.clear()  # of calls that had been answered

    def _serve(self, run: Run) -> None:
        began = monotonic()
        run.d -= began - run.read_at
        skipped = self._connection.skipped
        if run.n in skipped or (run.o and run.d <= 0):
            skipped.discard(run.n)
            self._give_back(run)
        elif run.d <= 0:
            text = "the deadline had passed when the child took the call"
            error = ErrorFrame(id=run.id, code="deadline", m=text, data={"ran": False})
            self._calling.note(run)
            self._connection.send(encode(error))
        elif self._page.begin(run.n, began, began + run.d, run.o):
            self._run(run, began)
        else:
            self._give_back(run)

    def _work_lent(self, run: ToBorrowed) -> None:
        borrower = self._borrower
        if type(run) is not LentRun:
            return  # a cancel, of a call that was answered meanwhile
        began = monotonic()
        run.d -= began - run.read_at
        session = self._calling.lent(run.session) if run.session else None
        there = (session is not None or not run.session) and self._calling.knows(run.command)
        if run.n in borrower.skipped or not there:
            borrower.give_back(run)
        elif run.d <= 0:
            text = "the deadline had passed when the child took the call"
            data = {"ran": False}
            borrower.send(encode(ErrorFrame(id=run.id, code="deadline", m=text, data=data)))
        elif not borrower.page.begin_order(run.o):
            borrower.give_back(run)
        else:
            self._page.begin_lent(run.n, began, began + run.d, run.command)
            self._run_lent(run, session, began)
        if not borrower.messages:
            borrower.skipped.clear()

    def _run_lent(self, run: LentRun, session: Session | None, began: float) -> None:
        borrower, calling = self._borrower, self._calling
        self._output.begin(run.n, run.request_id)
        frame = calling.answer_lent(run, session, began)
        self._output.end()
        (self._connection if calling.passes else borrower).send(frame)
        told = None
        if borrower.socket is not None:  # else the manager was lost, and the loan with it
            borrower.page.end_lent()
            told = borrower.count(began, calling.run_us, failed=calling.failed)
        self._page.end_lent(failed=calling.failed)
        if told is not None:
            self._connection.send(encode(told))
            self._page.told()
        self._count()

    def _run(self, run: Run, began: float) -> None:
        self._output.begin(run.n, run.request_id)
        frame = self._calling.answer(run, began)
        self._output.end()
        self._connection.send(frame)
        self._page.end()  # last: a child that cannot send is busy, and has its deadline
        self._count()

    def _count(self) -> None:
        self._calls += 1
        if self._calls == self._max_calls:
            self._channel.send(Due(why=f"max_calls: {self._calls} calls"))

    def _give_back(self, run: Run) -> None:
        self._calling.note(run)
        self._connection.send(encode(Back(o=run.o)))
