"""Requests of a client to workers: how a child died, kill it, sessions, globals, orders, status.

A worker answers while its children compute.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from cordata.errors import FrameTooLarge, ProtocolError
from cordata.pool.client.connection import MAX_TAKEN, connect
from cordata.pool.client.values import error_of
from cordata.pool.shared import protocol


class ControlClient:
    """Sends requests to workers, over one connection to each, made at the first request."""

    def __init__(self) -> None:
        self._connections: dict[Path, _Connection] = {}

    def ask(self, path: Path, request: protocol.FromControlClient) -> asyncio.Future[Any]:
        """Send a request to the worker at `path`; returns the future of the answer, a packet.

        The future raises ConnectionError when the worker goes away before it answers, and the
        worker's error when it refuses the request. Raises: OSError when nothing could be sent.
        """
        connection = self._connections.get(path)
        if connection is None or connection.closed:
            connection = self._connections[path] = _Connection(path)
        return connection.ask(request)

    def silent_s(self, path: Path) -> float:
        """For how long the worker at `path` has owed an answer and sent none; 0: it owes none."""
        connection = self._connections.get(path)
        return connection.silent_s if connection is not None else 0.0

    def close(self, *, forked: bool = False) -> None:
        """Close all connections; `forked`: they belong to the parent, and stay open there."""
        for connection in self._connections.values():
            connection.close(forked=forked)
        self._connections.clear()


class _Connection:
    def __init__(self, path: Path) -> None:
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._number = 0
        #: Open requests, by number: the future of the answer, and the size in bytes.
        self._asked: dict[int, tuple[asyncio.Future[Any], int]] = {}
        #: Loop time of the last answer, or of the first request after all were answered.
        self._silent_since = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        try:
            connect(self._socket, path)
        except BaseException:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._readable)

    @property
    def silent_s(self) -> float:
        return self._loop.time() - self._silent_since if self._asked else 0.0

    def ask(self, request: protocol.FromControlClient) -> asyncio.Future[Any]:
        self._number += 1
        request.number = self._number
        data = protocol.encode(request)
        protocol.send(self._socket, data)
        future = self._loop.create_future()
        if not self._asked:
            self._silent_since = self._loop.time()
        self._asked[self._number] = future, len(data)
        return future

    def close(self, *, forked: bool = False) -> None:
        if self.closed:
            return
        self.closed = True
        if not forked:
            self._loop.remove_reader(self._socket)
        self._socket.close()
        asked, self._asked = self._asked, {}
        for future, _ in asked.values():
            if not forked:
                _fail(future, ConnectionError("the worker is gone"))

    def _refused(self, error: Exception) -> None:
        """The worker refused a request, does not say which one, and closes the connection."""
        limit = error.limit_bytes if isinstance(error, FrameTooLarge) else 0
        for future, size in self._asked.values():
            if size > limit:
                _fail(future, error)
        self.close()

    def _readable(self) -> None:
        while not self.closed:
            try:
                data, files = protocol.receive(self._socket, MAX_TAKEN)
                protocol.close(files)
                if not data:
                    self.close()
                    return
                packet = protocol.to_control_client.decode(data)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue
            except (OSError, ProtocolError, FrameTooLarge):
                self.close()
                return
            if isinstance(packet, protocol.Failure) and packet.number == 0:
                self._refused(error_of(packet))
                return
            self._silent_since = self._loop.time()
            future, _ = self._asked.pop(packet.number, (None, 0))
            if future is not None and not future.done():
                future.set_result(packet)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as seen: it may not be awaited any more
