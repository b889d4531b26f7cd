"""A worker: it tells what becomes of its child, and does to it what the manager may not."""

from __future__ import annotations

from cordata.core.frame import TooLarge
from cordata.core.pool.codec import from_worker
from cordata.core.pool.message import Hello
from cordata.core.pool.order import ChildEvent, Drain, TakenBack
from cordata.errors import ProtocolError
from cordata.pool.server.link import Link


class WorkerPeer:
    """Its words, given to the dispatcher."""

    __slots__ = ("_hub", "_link", "hello")

    def __init__(self, link: Link, hello: Hello) -> None:
        self._link = link
        self._hub = link.hub
        self.hello = hello

    def join(self) -> None:
        """It is known from now on. An older connection under its name is no good any more."""
        hub, hello = self._hub, self.hello
        slot = hub.dispatcher.registry.by_worker.get(hello.name)
        older = slot.conn if slot is not None else None
        hub.dispatcher.worker_joined(hello.name, self._link, hello.inv, hello.cmds, hub.now)
        if older is not None:
            older.abort()
        while hub.alarms:
            hub.alarm(*hub.alarms.popitem())

    def take(self, frame: bytes) -> None:
        """One message. Raises: ProtocolError for what a worker does not say."""
        message = from_worker.decode(frame)
        hub, name = self._hub, self.hello.name
        if isinstance(message, ChildEvent):
            if message.ev == "holds":
                hub.lending.holds(message)
                return
            if message.pid:  # else there was no process
                hub.counting.told(message.ev, message.why)
            if message.ev == "exited":
                self._hear_out(message)
                hub.lending.died(message)
            hub.dispatcher.child_event(name, message, hub.now)
            child = hub.dispatcher.registry.by_pid.get((message.pid, message.start))
            if child is not None and message.rss:
                child.rss_bytes = message.rss
        elif isinstance(message, Drain):
            hub.dispatcher.drain(name, message.on, hub.now)
            if message.on:
                hub.dispatcher.hurry(name, hub.now)
            hub.lending.recall_worker(name)
        elif isinstance(message, TakenBack):
            child = hub.dispatcher.registry.by_pid.get((message.pid, message.start))
            if child is not None:
                hub.dispatcher.taken_back(child, message.begun, message.o, hub.now)
        else:
            raise ProtocolError("a second hello")

    def _hear_out(self, message: ChildEvent) -> None:
        """The child is dead; what it answered before may not have been read."""
        child = self._hub.dispatcher.registry.by_pid.get((message.pid, message.start))
        if child is not None and child.conn is not None:
            child.conn.peer.hear_out()

    def too_large(self, frame: TooLarge) -> None:
        """No worker has that much to say."""
        raise ProtocolError(f"a frame of {frame.length} bytes from a worker")

    def lost(self) -> None:
        """It stopped or died, and its children with it; or it dials again."""
        self._hub.dispatcher.worker_lost(self.hello.name, self._link, self._hub.now)

    def blocked(self, yes: bool) -> None:
        """Orders wait for it; what becomes of its children it still says."""
