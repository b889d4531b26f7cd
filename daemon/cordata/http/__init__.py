"""HTTP/1.1 for any ASGI application: our own connection layer over httptools.

A subclass of uvicorn's protocol would have to override nearly all of it: limits, deadlines,
grammar, back-pressure and the end of a request. tests/bench/http_health.py measures ours beside
uvicorn, granian and aiohttp.
"""

from cordata.http.asgi import AsgiApp
from cordata.http.mounts import compose
from cordata.http.server import HttpServer, HttpStats
from cordata.http.spread import open_spread

__all__ = ["AsgiApp", "HttpServer", "HttpStats", "compose", "open_spread"]
