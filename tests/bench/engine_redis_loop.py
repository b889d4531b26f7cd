"""As little as a reliable consumer can do: read 500, acknowledge them with the next read.

python -m tests.bench.engine_redis_loop PORT KEY GROUP NAME; it begins with a line on stdin.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import hiredis

COUNT = 500


def run(port: int, key: str, group: str, name: str) -> int:
    """Consume what is there. Returns the number of entries."""
    reader = hiredis.Reader()
    total = 0
    words: Any = ("XREADGROUP", "GROUP", group, name, "COUNT", COUNT, "STREAMS", key, ">")
    read = hiredis.pack_command(words)
    acknowledge = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            connection.sendall(acknowledge + read)
            if acknowledge:
                _reply(connection, reader)
            found = _reply(connection, reader)
            if not found:
                return total
            ids = [entry[0] for entry in found[0][1]]
            total += len(ids)
            done: Any = ("XACK", key, group, *ids)
            acknowledge = hiredis.pack_command(done)


def _reply(connection: socket.socket, reader: hiredis.Reader) -> Any:
    while (reply := reader.gets()) is False:
        reader.feed(connection.recv(1 << 18))
    return reply


if __name__ == "__main__":
    print("up", flush=True)
    sys.stdin.readline()
    run(int(sys.argv[1]), *sys.argv[2:])
