"""N processes of aiohttp's own server with the same route.

python -m tests.bench.http_aiohttp PORT WORKERS
"""

from __future__ import annotations

import os
import sys

import uvloop
from aiohttp import web


async def health(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


def main() -> None:
    port, workers = int(sys.argv[1]), int(sys.argv[2])
    app = web.Application()
    app.router.add_get("/api/health", health)
    for _ in range(workers - 1):
        if os.fork() == 0:
            break
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=port, reuse_port=True, access_log=None, print=None)


if __name__ == "__main__":
    main()
