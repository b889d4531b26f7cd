"""Starlette and FastAPI over real sockets: both directions, their middleware, their errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from tests.integration.http.live import live, read_head

from cordata.errors import StoreUnavailable
from cordata.http import AsgiApp, compose
from cordata.http.asgi import LifespanFailed
from cordata.log import request_id


class Seen:
    """What happened inside the application."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.happened = asyncio.Event()

    def add(self, name: str) -> None:
        self.events.append(name)
        self.happened.set()

    async def wait_for(self, name: str) -> None:
        async with asyncio.timeout(60):
            while name not in self.events:
                self.happened.clear()
                await self.happened.wait()


async def echo(request: Request) -> Response:
    return Response(await request.body(), headers={"x-length": str(len(await request.body()))})


async def count(request: Request) -> JSONResponse:
    size = 0
    async for piece in request.stream():
        size += len(piece)
    return JSONResponse({"size": size})


async def stream(request: Request) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(int(request.query_params["n"])):
            yield b"%d," % number

    return StreamingResponse(pieces())


async def threaded(request: Request) -> JSONResponse:
    return JSONResponse({"id": await run_in_threadpool(request_id.get)})


async def boom(request: Request) -> Response:
    raise ValueError("boom")


async def full(request: Request) -> Response:
    raise StoreUnavailable(retry_after_s=7)


class Tagging(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["x-tag"] = "1"
        return response


def application(seen: Seen | None = None, **extra: Any) -> Starlette:
    seen = seen or Seen()

    async def background(request: Request) -> Response:
        return Response("ok", background=BackgroundTask(seen.add, "background"))

    async def forever(request: Request) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                await asyncio.Event().wait()
            finally:
                seen.add("stream ended")

        return StreamingResponse(pieces())

    async def upload(request: Request) -> Response:
        try:
            await request.body()
        except ClientDisconnect:
            seen.add("client left")
        return Response("late")

    async def poll(request: Request) -> Response:
        while not await request.is_disconnected():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        seen.add("poll noticed")
        return Response("late")

    routes = [
        Route("/echo", echo, methods=["GET", "POST", "PUT"]),
        Route("/count", count, methods=["POST"]),
        Route("/stream", stream),
        Route("/threaded", threaded),
        Route("/boom", boom),
        Route("/full", full),
        Route("/background", background),
        Route("/forever", forever),
        Route("/upload", upload, methods=["POST"]),
        Route("/poll", poll),
    ]
    return Starlette(routes=routes, **extra)


@asynccontextmanager
async def client_of(app: AsgiApp, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with live(app, **options) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
            yield client


async def test_bodies_pass_both_ways() -> None:
    big = bytes(range(256)) * 8000  # 2 MB
    async with client_of(application()) as client:
        for body in (b"", b"x", big):
            answer = await client.post("/echo", content=body)
            assert answer.content == body and answer.headers["x-length"] == str(len(body))
        head = await client.head("/echo")
        assert head.status_code == 200 and head.content == b""


async def test_upload_streams_in_chunks() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(300):
            yield b"x" * 10_000

    async with client_of(application()) as client:
        answer = await client.post("/count", content=pieces())
        assert answer.json() == {"size": 3_000_000}


async def test_download_streams_in_chunks() -> None:
    async with client_of(application()) as client:
        answer = await client.get("/stream?n=2000")
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.text == "".join(f"{n}," for n in range(2000))


async def test_request_id_reaches_threads_of_the_application() -> None:
    async with client_of(application()) as client:
        answer = await client.get("/threaded", headers={"x-request-id": "abc.1"})
        assert answer.json() == {"id": "abc.1"} and answer.headers["x-request-id"] == "abc.1"


async def test_errors_are_answered_once_and_the_connection_lives() -> None:
    async with client_of(application()) as client:
        assert (await client.get("/boom")).text == "Internal Server Error"
        answer = await client.get("/full")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        assert answer.json()["error"] == "store_unavailable"
        assert (await client.get("/nowhere")).status_code == 404
        assert (await client.get("/stream?n=1")).text == "0,"


async def test_background_task_runs_after_the_response() -> None:
    seen = Seen()
    async with client_of(application(seen)) as client:
        assert (await client.get("/background")).text == "ok"
        await seen.wait_for("background")


@pytest.mark.parametrize(
    ("request_head", "event"),
    [
        (b"GET /forever HTTP/1.1\r\nHost: a\r\n\r\n", "stream ended"),
        (b"GET /poll HTTP/1.1\r\nHost: a\r\n\r\n", "poll noticed"),
        (b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", "client left"),
    ],
)
async def test_application_notices_that_its_client_left(request_head: bytes, event: str) -> None:
    seen = Seen()
    async with live(application(seen)) as server:
        reader, writer = await server.connect()
        writer.write(request_head)
        if event == "stream ended":
            await read_head(reader)
        else:
            await writer.drain()
        writer.close()
        await seen.wait_for(event)
        await server.quiet()


async def test_middleware_of_starlette_works() -> None:
    middleware = [Middleware(Tagging), Middleware(GZipMiddleware, minimum_size=10)]
    async with client_of(application(middleware=middleware)) as client:
        answer = await client.get("/stream?n=100")
        assert answer.headers["content-encoding"] == "gzip" and answer.headers["x-tag"] == "1"
        assert answer.text.endswith("99,")
        assert (await client.get("/boom")).status_code == 500


async def test_file_is_sent_whole_and_in_part(tmp_path: Any) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 1000)

    async def file(request: Request) -> FileResponse:
        return FileResponse(path)

    async with client_of(Starlette(routes=[Route("/f", file)])) as client:
        assert (await client.get("/f")).content == path.read_bytes()
        part = await client.get("/f", headers={"range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, path.read_bytes()[10:20])
        assert (await client.head("/f")).headers["content-length"] == "256000"


async def test_fastapi_validates_injects_and_fails() -> None:
    app = FastAPI()

    async def current(request: Request) -> str:
        return request.headers["x-user"]

    async def add(request: Request, n: int, user: str = Depends(current)) -> dict[str, Any]:
        return {"n": n + 1, "user": user, "body": json.loads(await request.body())}

    app.add_api_route("/add/{n}", add, methods=["POST"])
    async with client_of(app) as client:
        answer = await client.post("/add/1", json={"a": [1]}, headers={"x-user": "u"})
        assert answer.json() == {"n": 2, "user": "u", "body": {"a": [1]}}
        assert (await client.post("/add/x", headers={"x-user": "u"})).status_code == 422
        assert (await client.get("/openapi.json")).status_code == 200
        assert (await client.post("/add/1", json={})).status_code == 500


async def test_mounted_applications_find_their_paths_and_state() -> None:
    async def where(request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "url": str(request.url_for("where")),
                "root": request.scope["root_path"],
                "own": request.state.own,
                "shared": request.state.cordata,
            }
        )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        yield {"own": "set at startup"}

    inner = Starlette(
        routes=[Mount("/deep", routes=[Route("/where", where, name="where")])], lifespan=lifespan
    )
    # Starlette names nested routes "mount:route"; without a mount name the route's own counts.
    app = compose({"/api": inner, "/plain": FastAPI()})
    async with client_of(app, state={"cordata": "context"}) as client:
        answer = (await client.get("/api/deep/where")).json()
        assert answer["url"].endswith("/api/deep/where")
        assert (answer["own"], answer["shared"]) == ("set at startup", "context")
        assert (await client.get("/plain/openapi.json")).status_code == 200
        assert (await client.get("/other")).status_code == 404


async def test_lifespan_runs_from_before_ready_to_after_the_last_request() -> None:
    seen = Seen()

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        seen.add("up")
        yield
        seen.add("down")

    async with live(application(lifespan=lifespan)) as server:
        assert seen.events == ["up"]
        await server.talk(b"GET /stream?n=1 HTTP/1.0\r\n\r\n")
    assert seen.events == ["up", "down"]


async def test_failing_startup_fails_the_service() -> None:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        raise ValueError("no database")
        yield

    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.timeout(60), live(application(lifespan=lifespan)):
            raise AssertionError("it must not become ready")
    failure = group.value
    while isinstance(failure, ExceptionGroup):
        failure = failure.exceptions[0]
    assert isinstance(failure, LifespanFailed)
    # Starlette would have it tell the whole traceback, messages included.
    assert "ValueError at test_frameworks.py:" in str(failure) and "database" not in str(failure)
