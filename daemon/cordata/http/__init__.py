"""HTTP/1.1 for any ASGI application, on asyncio.

    accept --> server --> connection --> exchange --> the ASGI application
                             |  parser      |  response, access_log
                             +---- state, flow

A subclass of uvicorn's protocol would have to override nearly all of it: limits, deadlines,
grammar, back-pressure and the end of a request. tests/bench/http_health.py measures it beside
uvicorn, granian and aiohttp.
"""

from cordata.http.accept import ConnectionCounts
from cordata.http.asgi import AsgiApp, compose
from cordata.http.server import HttpServer

__all__ = ["AsgiApp", "ConnectionCounts", "HttpServer", "compose"]
