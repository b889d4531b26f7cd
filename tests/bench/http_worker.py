"""N processes of our HttpServer on one listening socket, without the role around it.

python -m tests.bench.http_worker PORT WORKERS COUNTS_FILE
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import uvloop

from cordata.config.sections import HttpConfig
from cordata.http import HttpServer


async def serve(listener: socket.socket) -> None:
    from tests.bench.http_app import app

    server = HttpServer(app, [listener], HttpConfig(), counts_path=Path(sys.argv[3]))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    signal.signal(signal.SIGUSR1, lambda *_: print(os.getpid(), server.status(), flush=True))
    await server.run(stop)


def main() -> None:
    port, workers = int(sys.argv[1]), int(sys.argv[2])
    logging.basicConfig(level=logging.WARNING)
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    for _ in range(workers - 1):
        if os.fork() == 0:
            break
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(listener))


if __name__ == "__main__":
    main()
