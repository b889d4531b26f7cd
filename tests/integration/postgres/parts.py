"""Real parts for the tests of the store on PostgreSQL: a store, a load on it, a cut wire."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.contract.store.stores import CHAINS, SQL
from tests.queries import queries_of
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched
from tests.waiting import until_async

from cordata.clock import monotonic
from cordata.config.sections import StoreConfig
from cordata.errors import TransientError
from cordata.store import Store, Tx
from cordata.store.postgres.store import PostgresStore


@asynccontextmanager
async def opened(
    url: str, *, migrate: bool = True, **settings: object
) -> AsyncIterator[PostgresStore]:
    """One more process' store."""
    store = await PostgresStore.open(
        StoreConfig(url=url, **settings),  # type: ignore[arg-type]
        queries=queries_of("postgres", SQL),
    )
    async with store:
        if migrate:
            await store.migrate(CHAINS)
        yield store


def changes_in(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The states that the store has said to be in, each with what it said."""
    records = [one for one in caplog.records if "STORE_STATE" in one.__dict__]
    return [(str(one.__dict__["STORE_STATE"]), one.getMessage()) for one in records]


async def deposit(store: Store, note: str) -> None:
    """One durable entry. A second one with the same note is a Conflict."""

    async def unit(tx: Tx) -> None:
        await tx.execute("account.add_once", id="a", balance=0)
        await tx.execute("entry.add", account_id="a", amount=1, note=note)

    await store.run(unit)


async def deposit_batched(store: Store, note: str) -> None:
    """The same, in a transaction that it shares."""

    async def unit(tx: Tx) -> None:
        await tx.write("account.add_once", id="a", balance=0)
        await tx.insert("entry", account_id="a", amount=1, note=note)

    await store.run(unit, batch=True)


async def deposit_solo(store: Store, note: str) -> None:
    """The same, in a transaction of its own."""
    async with store.transaction() as tx:
        await tx.execute("account.add_once", id="a", balance=0)
        await tx.execute("entry.add", account_id="a", amount=1, note=note)


def notes_there(server: PostgresServer, url: str) -> list[str]:
    """What the server has, asked past the store."""
    database = urlsplit(url).path.removeprefix("/")
    return [row[0] for row in server.execute("SELECT note FROM entry", database=database)]


class Load:
    """Depositors that go on whatever happens; what they were promised, and what they were told."""

    def __init__(self, store: Store, *, width: int = 8, name: str = "n") -> None:
        self._store = store
        self._width = width
        self._name = name
        self._stop = False
        self._tried = 0
        #: Notes of deposits that returned.
        self.promised: list[str] = []
        #: Errors that say that a later try may succeed; any other ends the load.
        self.refused: list[TransientError] = []
        #: Longest time that a deposit took, refused or not.
        self.longest_s = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """The load, for the time of the block."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._width):
                put = (deposit, deposit_batched, deposit_batched, deposit_solo)[number % 4]
                group.create_task(self._run(put))
            try:
                yield self
            finally:
                self._stop = True

    async def more(self, count: int = 50) -> None:
        """Wait until so many more deposits succeeded."""
        target = len(self.promised) + count
        await until_async(lambda: len(self.promised) >= target)

    async def _run(self, put: Callable[[Store, str], Awaitable[None]]) -> None:
        while not self._stop:
            self._tried += 1
            note = f"{self._name}{self._tried}"
            began = monotonic()
            try:
                await put(self._store, note)
            except TransientError as error:
                self.refused.append(error)
                await asyncio.sleep(0.02)
            else:
                self.promised.append(note)
            self.longest_s = max(self.longest_s, monotonic() - began)


class Child:
    """A `child.py` process; killed at the end if it still lives."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def line(self, timeout_s: float = 120.0) -> list[str]:
        """The words of its next line; none after its end."""
        assert self._process.stdout is not None
        async with asyncio.timeout(timeout_s):
            return (await self._process.stdout.readline()).decode().split()

    def go(self) -> None:
        """Tell it to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def end(self) -> None:
        """kill -9, if it still lives."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def child(mode: str, url: str, name: str) -> AsyncIterator[Child]:
    """Start a process with a store of its own; returns when that is open."""
    root = Path(__file__).parents[3]
    starting = asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.postgres.child",
        mode,
        url,
        name,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'daemon'}:{root}"},
    )
    started = Child(watched(await starting))
    try:
        assert (await started.line())[:2] == ["up", name]
        yield started
    finally:
        await started.end()


class Wire:
    """A TCP proxy in front of a server that a test can cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        #: Called with what clients send; False: the connection is closed at once, True: after
        #: the server has answered to it, without the answer. None: nothing happens.
        self.look: Callable[[bytes], bool | None] = lambda data: None

    def url(self, url: str) -> str:
        """A server's url with this wire in between."""
        parts = urlsplit(url)
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))

    def cut(self) -> None:
        """From now on nothing gets through, and nobody is told."""
        self._open.clear()

    def freeze(self) -> None:
        """The same for the connections that are open now; new ones are another server's."""
        frozen, self._open = self._open, asyncio.Event()
        self._open.set()
        frozen.clear()

    def mend(self) -> None:
        """What was held back gets through, and all the rest."""
        self._open.set()

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            there, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            mute, is_open = asyncio.Event(), self._open
            try:
                async with asyncio.TaskGroup() as group:
                    there_to = self._forward(there, writer, None, mute, is_open)
                    here_to = self._forward(reader, to_server, self.look, mute, is_open)
                    ways = [group.create_task(here_to), group.create_task(there_to)]
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ways:
                        way.cancel()
            finally:
                to_server.close()
                writer.close()

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        look: Callable[[bytes], bool | None] | None,
        mute: asyncio.Event,
        is_open: asyncio.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await is_open.wait()
                if look is None and mute.is_set():
                    return  # the answer, kept back
                said = self.look(data) if look is not None else None
                if said is False:
                    return
                if said:
                    mute.set()
                target.write(data)
                await target.drain()


class RoundTrips:
    """To look through a Wire: counts the round trips to the server."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, data: bytes) -> None:
        self.count += data.count(b"S\0\0\0\x04")  # Sync


class Cutter:
    """To look through a Wire: cuts it at the first COMMIT that it sees, which holds some text."""

    def __init__(self, text: bytes = b"", *, answered: bool, armed: bool = True) -> None:
        """`answered`: the server hears of it. `armed`: at once."""
        self._text = text
        self._answered = answered
        self.armed = armed
        self.cuts = 0

    def __call__(self, data: bytes) -> bool | None:
        if not self.armed or b"COMMIT\0" not in data or self._text not in data:
            return None
        self.armed = False
        self.cuts += 1
        return self._answered
