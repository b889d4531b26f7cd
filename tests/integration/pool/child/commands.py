"""Commands of a child that tests start."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import cordata
from cordata.errors import PermanentError, PoolSaturated
from cordata.log import request_id

_left: ContextVar[str] = ContextVar("left", default="nothing")
warmed: list[str] = []


def warm_up() -> None:
    warmed.append("sync")


async def warm_up_async() -> None:
    await asyncio.sleep(0)
    warmed.append("async")


def slow_init() -> None:
    time.sleep(2.0)


def take_ticket() -> None:
    """Warm up when a file is there, which is gone then."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.environ["POOLED_TICKET"])
            return
        time.sleep(0.005)


def meet() -> None:
    """Warm up when four processes do."""
    file = Path(os.environ["POOLED_MEETING"])
    with file.open("a") as out:
        out.write("here\n")
    while file.read_text().count("here") < 4:
        time.sleep(0.005)


def broken_init() -> None:
    print("half way")
    raise RuntimeError("no fonts")


def lengthy_init() -> None:
    raise ImportError("no\nfonts " + 1000 * "x")


def deadly_init() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def echo(payload: Any, session: Any) -> Any:
    return payload


def fork(way: str) -> int | str:
    """Fork; the copy comes back to the child in some way, too. Returns its exit status."""
    copy = os.fork()
    if copy:
        return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    if way == "raise":
        raise ValueError("of the copy")
    if way == "exit":
        sys.exit(7)
    if way == "close":
        sys.stdout.close()
    return "the copy"


def fork_within_a_stream() -> Iterator[int]:
    """Fork between two values; the copy goes on, too."""
    yield 1
    copy = os.fork()
    yield 2
    if copy:
        os.waitpid(copy, 0)
        yield 3


async def fork_and_wait(file: str) -> None:
    """Fork; the copy returns, and this process waits for its caller to leave."""
    if copy := os.fork():
        os.waitpid(copy, 0)
        Path(file).touch()
        await asyncio.sleep(20.0)


def fork_away() -> int:
    """Fork a process that outlives the child; its pid."""
    read, write = os.pipe()
    copy = os.fork()
    if copy:
        os.read(read, 1)
        return copy
    os.setsid()
    os.write(write, b"x")
    time.sleep(60.0)
    os._exit(0)


def add(number: int, by: int = 1) -> int:
    return number + by


def about(payload: Any, session: Any) -> Any:
    call = cordata.current_call()
    if isinstance(payload, float):
        time.sleep(payload)
    before = _left.get()
    _left.set("something")
    return {
        "id": call.id,
        "command": call.command,
        "request_id": [call.request_id, request_id.get()],
        "remaining": call.remaining_s(),
        "cancelled": call.cancelled(),
        "warmed": warmed,
        "pid": os.getpid(),
        "left": before,
        "session": None if session is None else session.id,
    }


async def about_async(payload: Any, session: Any) -> Any:
    await asyncio.sleep(0.001)
    call = cordata.current_call()
    told = None if call.session is None else [call.session.id, call.session is session]
    inner = await asyncio.create_task(_in_a_task())
    return [call.command, request_id.get(), id(asyncio.get_running_loop()), told, inner]


async def _in_a_task() -> list[str]:
    """What a task of the command's own finds."""
    return [cordata.current_call().command, request_id.get()]


class Fault(PermanentError):
    pass


def fail(payload: Any, session: Any) -> None:
    raise {"fault": Fault, "value": ValueError, "long": ValueError}[payload](
        "x" * 100_000 if payload == "long" else f"no {payload} \udcff"
    )


async def fail_async(payload: Any, session: Any) -> None:
    await asyncio.sleep(0)
    raise ValueError("later")


def odd(payload: Any, session: Any) -> Any:
    return object()


def large(payload: Any, session: Any) -> bytes:
    return bytes(payload)


def numbers(payload: Any, session: Any) -> Iterator[int]:
    for number in range(payload):
        yield number
        if session is not None:
            session["last"] = number


async def numbers_async(payload: Any, session: Any) -> AsyncIterator[int]:
    for number in range(payload):
        await asyncio.sleep(0)
        yield number


def endless(payload: Any, session: Any) -> Iterator[bytes]:
    try:
        while True:
            yield bytes(payload or 1000)
    finally:
        print("closed")


def modules(payload: Any, session: Any) -> list[str]:
    return sorted(sys.modules)


def remember(payload: Any, session: Any) -> Any:
    """Assign, delete, count; fail when told."""
    current: Any = cordata.current_call().session
    assert current is session
    before = {"data": dict(session), "counters": dict(session.counters)}
    for key, value in payload.get("set", {}).items():
        session[key] = value
    for key in payload.get("del", []):
        del session[key]
    session.count(**payload.get("count", {}))
    shared = cordata.current_call().globals
    before["globals"] = dict(shared)
    for key, value in payload.get("gset", {}).items():
        shared[key] = value
    if payload.get("fail"):
        raise ValueError("after all")
    return before


def wait(payload: Any, session: Any) -> str:
    """Until cancelled, or so long."""
    end = time.monotonic() + payload
    while time.monotonic() < end:
        if cordata.current_call().cancelled():
            return "cancelled"
        time.sleep(0.005)
    return "done"


async def wait_async(payload: Any, session: Any) -> str:
    await asyncio.sleep(payload)
    return "done"


async def note_cancel(payload: Any, session: Any) -> None:
    """Take so long; leave a file when cancelled before."""
    file, seconds = payload
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        Path(file).touch()
        raise


def note(payload: Any, session: Any) -> int:
    """Leave word in a file that this number ran; then take so long."""
    file, number, seconds = payload
    with open(file, "a") as out:
        out.write(f"{number}\n")
    time.sleep(seconds)
    return int(number)


def much(payload: Any, session: Any) -> bytes:
    """So many bytes."""
    return bytes(payload)


def nest(payload: Any, session: Any) -> Any:
    """After a pause, call another command of the pool at this path."""
    from cordata.pool import SyncClient

    path, pause_s, command, inner = payload
    time.sleep(pause_s)
    with SyncClient(path, timeout=60.0) as client:
        return client.execute(command, inner)


async def nest_async(payload: Any, session: Any) -> Any:
    from cordata.pool import Client

    path, pause_s, command, inner = payload
    await asyncio.sleep(pause_s)
    async with Client(path, timeout=60.0) as client:
        return await client.execute(command, inner)


async def nest_start(payload: Any, session: Any) -> str:
    """Start a call to the pool at this path when its children are known; raise its error if it
    has ended at once.
    """
    from cordata.pool import Client

    async with Client(payload, timeout=60.0) as client:
        with contextlib.suppress(PoolSaturated):
            await client.execute("echo")
        call = client.start("echo")
        if call.done():
            await call
        return "waits"


def compute(seconds: float) -> None:
    """Hold the interpreter's lock: one C call after the other, each of which takes a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(3_000_000))


def hang(payload: Any, session: Any) -> None:
    """Longer than anybody waits, and deaf."""
    print("hanging", flush=True)
    time.sleep(60.0)


def speak(payload: Any, session: Any) -> None:
    print("printed", payload)
    print("to stderr", file=sys.stderr)
    print("unfinished", end="")
    logging.getLogger("shop.pdf").warning("logged\ntwice")
    logging.getLogger("shop.pdf").debug("not logged")


def die(payload: Any, session: Any) -> None:
    print("last words")
    if payload == "exit":
        sys.exit(3)
    os.kill(os.getpid(), payload)


def note_and_die(payload: Any, session: Any) -> None:
    """Leave word of this process, then end it."""
    with open(payload, "a") as out:
        out.write(f"{os.getpid()}\n")
    os.kill(os.getpid(), 11)


def weigh(payload: Any, session: Any) -> list[int]:
    """Sizes of what the call has, its session and the globals."""
    large = cordata.current_call().globals["large"]
    return [len(payload["blob"]), len(session["large"]), len(large)]


def leave_a_thread(payload: Any, session: Any) -> None:
    """That no orderly end would outlive."""
    threading.Thread(target=time.sleep, args=(600.0,)).start()
    if payload:
        raise {"exit": SystemExit(3), "abort": Abort("x"), "interrupt": KeyboardInterrupt()}[
            payload
        ]


class Undone:
    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __del__(self) -> None:
        raise LookupError(self._secret)


class Abort(BaseException):
    pass


def leak(payload: Any, session: Any) -> None:
    """Fail with a secret in each way that Python would print by itself."""
    how, secret = payload
    if how == "log":
        try:
            raise LookupError(secret)
        except LookupError:
            logging.getLogger("shop.pdf").exception("no rate")
    elif how == "arguments":
        logging.getLogger("shop.pdf").error("%d rates", secret)
    elif how == "thread":
        thread = threading.Thread(target=lambda: {}[secret])
        thread.start()
        thread.join()
    elif how == "object":
        Undone(secret)
    elif how == "exit":
        sys.exit(secret)
    elif how == "abort":
        raise Abort(secret)


async def leak_async(payload: Any, session: Any) -> None:
    """As `leak`, by a task that nobody waits for."""

    async def fail() -> None:
        raise LookupError(payload[1])

    task = asyncio.create_task(fail())
    await asyncio.sleep(0.01)
    del task
    gc.collect()


def start_another(payload: Any, session: Any) -> int:
    """A process of the command's own, which outlives the call."""
    return os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")


def grow(payload: Any, session: Any) -> int:
    warmed.append("x" * payload)
    return os.getpid()


def take_time() -> None:
    """As long as the environment says, and until a file is there; not at all while another is."""
    if os.path.exists(os.environ.get("POOLED_BROKEN", "")):
        raise FileExistsError("POOLED_BROKEN")
    while not os.path.exists(os.environ.get("POOLED_INIT_WAITS_FOR", "/")):
        time.sleep(0.005)
    time.sleep(float(os.environ.get("POOLED_INIT_S", "0")))
