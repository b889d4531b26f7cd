"""Program: leaves a transport open when its loop ends, `role` as a role and `test` as a test."""

from __future__ import annotations

import asyncio
import socket
import sys

from cordata.testing import async_test
from cordata.wiring.event_loop import run_on_uvloop

_SOCKETS: list[socket.socket] = []


async def leave() -> int:
    ours, theirs = socket.socketpair()
    _SOCKETS.append(theirs)
    await asyncio.get_running_loop().create_unix_connection(asyncio.Protocol, sock=ours)
    return 0


@async_test
async def well() -> None:
    await leave()


@async_test
async def badly() -> None:
    await leave()
    raise LookupError("of its own")


if sys.argv[1] == "role":
    sys.exit(run_on_uvloop(leave))
{"well": well, "badly": badly}[sys.argv[1]]()
