"""The server side of $NOTIFY_SOCKET: receives datagrams with the sender's pid from the kernel."""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Iterator

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred, unix(7)
_MAX_DATAGRAM = 4096


class NotifySocket:
    """An abstract unix datagram socket: no file to create, to protect or to leave behind."""

    def __init__(self) -> None:
        name = f"cordata/{os.getpid()}/{secrets.token_hex(8)}"
        #: The value of NOTIFY_SOCKET.
        self.address = f"@{name}"
        self._sock = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._sock.bind(f"\0{name}")

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._sock.fileno()

    def receive(self) -> Iterator[tuple[int, dict[str, str]]]:
        """(pid, assignments) of every datagram that has arrived.

        There is no room for descriptors, which a child may send unasked (FDSTORE=1), so the kernel
        closes them: unix(7).
        """
        room = socket.CMSG_SPACE(_CREDENTIALS.size)
        while True:
            try:
                data, ancillary, _, _ = self._sock.recvmsg(_MAX_DATAGRAM, room)
            except BlockingIOError:
                return
            pid = 0
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    pid = _CREDENTIALS.unpack(content)[0]
            lines = data.decode(errors="replace").splitlines()
            yield pid, dict(line.split("=", 1) for line in lines if "=" in line)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
