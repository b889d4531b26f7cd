"""File descriptors that came over a unix socket: unix(7), SCM_RIGHTS."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterable
from typing import Any, Protocol

#: For so many at once; more are closed by the kernel.
SPACE = socket.CMSG_SPACE(4 * array.array("i").itemsize)


class Transport(Protocol):
    """What is wanted of one of asyncio, which a child does not import."""

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be written."""

    def get_extra_info(self, name: str) -> Any:
        """Its socket, by that name."""


def received(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """Those of one recvmsg, in their order; the caller closes them."""
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def send(transport: Transport, data: bytes, files: list[int]) -> int:
    """Send them with the first byte; gives how much of `data` went, -1: nothing could, since the
    other side has not read what was sent before.
    """
    if transport.get_write_buffer_size():
        return -1
    # A transport knows nothing of descriptors; this is the same socket.
    try:
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as twin:
            return socket.send_fds(twin, [data], files)
    except OSError:
        return -1


def close(files: Iterable[int]) -> None:
    """Nobody wants them."""
    for file in files:
        os.close(file)
