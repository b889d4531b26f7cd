"""What operators ask on a local address: its clients do not hold the stop up."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from pathlib import Path, PosixPath
from typing import Any

import pytest
from tests.servers.process import free_port
from tests.unit.http.apps import GET, body, http_only, start
from tests.waiting import until_async

from cordata.http.asgi import Receive, Scope, Send
from cordata.services.local_http import LocalHttpService

#: More than the kernel's buffers take.
MUCH = 1 << 25


async def test_client_that_does_not_read_is_cut_off_soon_after_the_stop(tmp_path: Path) -> None:
    begun, stop = asyncio.Event(), asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        begun.set()
        await send(body(bytes(MUCH), more=True))

    port = free_port()
    address, lock = f"127.0.0.1:{port}", tmp_path / "lock"
    service = LocalHttpService("status", http_only(stream), address, lock=lock)
    async with asyncio.TaskGroup() as group:
        run = group.create_task(service.run(stop))
        await until_async(lambda: _listens(port))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(GET)
            await begun.wait()
            stop.set()
            async with asyncio.timeout(30):  # the worker itself has no more
                await run


class NotAnswering(PosixPath):
    """A path on a network file system whose server does not answer."""

    def mkdir(self, *_: Any, **__: Any) -> None:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


async def test_timeout_of_the_operating_system_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "status.sock")
    lock = NotAnswering(tmp_path / "lock")
    service = LocalHttpService("status", http_only(_nothing), path, lock=lock)
    stop = asyncio.Event()
    with caplog.at_level(logging.ERROR, "cordata.local"):
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(stop))
            await asyncio.sleep(0)  # it tries once, at once
            stop.set()
    assert caplog.messages == [f"status cannot be served at {path}: Connection timed out"]


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None: ...


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
