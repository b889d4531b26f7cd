"""Real parts for the store's tests: a file to open, a small disk, an honest witness."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from tests.contract.store.stores import CHAINS, SQL
from tests.queries import queries_of
from tests.servers.reaper import watched

from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable
from cordata.store import Store, Tx
from cordata.store.sqlite.store import SqliteStore

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")


@asynccontextmanager
async def opened(
    state: Path, *, migrate: bool = True, **changes: object
) -> AsyncIterator[SqliteStore]:
    """A store in a directory; its wake-up sockets are there too."""
    store = await SqliteStore.open(
        StoreConfig(**changes),  # type: ignore[arg-type]
        state_dir=state,
        runtime_dir=state,
        queries=queries_of("sqlite", SQL),
    )
    async with store:
        if migrate:
            await store.migrate(CHAINS)
        yield store


async def deposit(store: Store, note: str, size: int = 0) -> None:
    """One durable entry, `size` characters larger than its note."""

    async def unit(tx: Tx) -> None:
        await tx.execute("account.add_once", id="a", balance=0)
        await tx.execute("entry.add", account_id="a", amount=1, note=note + "." * size)

    await store.run(unit)


async def refused(store: Store, note: str) -> StoreUnavailable | None:
    """Try to deposit; the error, or None when it was taken."""
    try:
        await deposit(store, note)
    except StoreUnavailable as error:
        return error
    return None


def notes_on_disk(state: Path) -> list[str]:
    """What a program that knows nothing of us finds; checks the whole file."""
    with closing(sqlite3.connect(state / "cordata.db")) as witness:
        assert witness.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert witness.execute("PRAGMA foreign_key_check").fetchall() == []
        return [row[0] for row in witness.execute("SELECT note FROM entry ORDER BY note")]


@contextmanager
def small_disk(path: Path, size: str = "4m") -> Iterator[Path]:
    """A tmpfs of its own, to be filled and remounted."""
    path.mkdir()
    options = f"size={size},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@contextmanager
def real_disk(folder: Path) -> Iterator[Path]:
    """An ext4 file system in a file, as the kernel would find it on a disk."""
    image, path = folder / "image", folder / "disk"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    if not shutil.which("mkfs.ext4"):
        pytest.skip("no mkfs.ext4 here")
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    path.mkdir()
    mount(folder)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def mount(folder: Path) -> None:
    """Mount the image of `real_disk` again."""
    subprocess.run(["mount", "-o", "loop", folder / "image", folder / "disk"], check=True)


def abort(path: Path) -> None:
    """What ext4 does to itself after an I/O error in its journal: read-only, whoever writes."""
    subprocess.run(["mount", "-o", "remount,abort", path], check=True)


def fill(filler: Path) -> None:
    """Let a file take every byte that is free."""
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 4096):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                pass


def use_up(disk: Path) -> None:
    """Let another program take what is left of a full disk: not one page has room any more.

    A commit that failed for want of room has made the log longer, by the pages that still had
    some: whatever is as small as that, an attempt to heal above all, is taken there later on.
    """
    fill(disk / "filler")
    with closing(sqlite3.connect(disk / "cordata.db", isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            for _ in range(10_000):
                other.execute("PRAGMA user_version = 0")  # as the store's own attempts: one page


def slow_sync(folder: Path) -> dict[str, str]:
    """The environment of a process whose disk stalls or fails as files in `folder` say."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc here")
    library = folder / "slow_sync.so"
    source = Path(__file__).with_name("slow_sync.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "SYNC_FAULT": str(folder)}


class Child:
    """One `child.py` process; killed at the end if it still lives."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid

    async def line(self, timeout_s: float = 120.0) -> str:
        """What it says next; "" after its end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout_s):
            return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def kill(self) -> list[str]:
        """kill -9; the whole lines that it had said and nobody read."""
        if self.process.returncode is None:
            self.process.kill()
        rest = b""
        if self.process.stdout is not None:
            rest = await self.process.stdout.read()
        await self.process.wait()
        return [line.decode() for line in rest.split(b"\n")[:-1]]


@asynccontextmanager
async def child(
    mode: str, state: Path, name: str = "a", **environment: str
) -> AsyncIterator[Child]:
    """Start a process that uses the store in `state`."""
    root = Path(__file__).parents[3]
    starting = asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.store.child",
        mode,
        str(state),
        name,
        stdout=asyncio.subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'daemon'}:{root}", **environment},
    )
    process = watched(await starting)
    started = Child(process)
    try:
        yield started
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            await started.kill()
