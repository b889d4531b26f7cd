"""The write-ahead log stays bounded."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.integration.store.parts import deposit, notes_on_disk, opened

from cordata.store import Store, Tx
from cordata.store.sqlite.wal import Wal

LIMIT = 256 * 1024


async def read_for_ever(store: Store, stop: asyncio.Event) -> int:
    """Snapshots without a gap: in the reader threads there is always one open."""
    count = 0

    async def unit(tx: Tx) -> None:
        await tx.fetch_all("entry.count")
        await tx.fetch_all("pause")

    while not stop.is_set():
        await store.read(unit)
        count += 1
    return count


async def write(store: Store, name: str, count: int) -> None:
    for number in range(count // 10):
        await asyncio.gather(*(deposit(store, f"{name}-{number}-{n}", 1000) for n in range(10)))


async def write_and_look(store: Store) -> int:
    """Write 3000 notes; the largest size of the log meanwhile."""
    largest = 0
    for part in range(300):
        await write(store, str(part), 10)
        largest = max(largest, store.stats().wal_bytes)
        if part % 30 == 29:
            await asyncio.sleep(0.12)
    print(f"largest {largest}")
    return largest


async def test_log_is_bounded_when_readers_never_pause(tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with (
        opened(tmp_path, wal_limit_bytes=LIMIT) as writer,
        opened(tmp_path, wal_limit_bytes=LIMIT) as reader,
    ):
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(read_for_ever(reader, stop)) for _ in range(4)]
            largest = await write_and_look(writer)
            stop.set()
        assert min(one.result() for one in readers) > 5
        # A checkpoint whose turn comes late on a busy machine finds some MiB more; the log of all
        # these deposits, never begun anew, has 27 MiB.
        assert largest < 48 * LIMIT
        assert (tmp_path / "cordata.db-wal").stat().st_size < 48 * LIMIT
    assert len(notes_on_disk(tmp_path)) == 3000


async def test_log_is_bounded_when_nobody_reads(tmp_path: Path) -> None:
    async with opened(tmp_path, wal_limit_bytes=LIMIT) as store:
        largest = await write_and_look(store)
        assert LIMIT < largest < 48 * LIMIT  # late on a busy machine, as above
        assert (tmp_path / "cordata.db-wal").stat().st_size < 48 * LIMIT
    assert len(notes_on_disk(tmp_path)) == 3000


async def test_checkpoint_is_incomplete_but_harmless_when_a_program_reads_for_long(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, wal_limit_bytes=LIMIT) as store:
        await write(store, "a", 200)
        with closing(sqlite3.connect(tmp_path / "cordata.db", isolation_level=None)) as shell:
            shell.execute("BEGIN")
            assert shell.execute("SELECT count(*) FROM entry").fetchone() == (200,)
            await write(store, "b", 200)
            assert await store.checkpoint() is False
            await write(store, "c", 10)
            assert shell.execute("SELECT count(*) FROM entry").fetchone() == (200,)
        assert await store.checkpoint() is True
        assert store.stats().wal_bytes == 0
        await write(store, "d", 10)
        assert 0 < store.stats().wal_bytes < LIMIT
    assert len(notes_on_disk(tmp_path)) == 420


async def test_live_size_is_exact_when_the_log_was_started_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for round_ in range(3):
            await write(store, str(round_), 100)
            witness = Wal(tmp_path / "cordata.db-wal")
            live = witness.live_bytes()
            frames = live // 4120
            assert live == frames * 4120 > 0
            with closing(sqlite3.connect(tmp_path / "cordata.db")) as shell:
                # (busy, frames in the log, frames moved)
                assert shell.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1] == frames
            assert store.stats().wal_bytes == live
            await store.checkpoint()
            assert store.stats().wal_bytes == 0


def test_log_is_empty_when_there_is_none(tmp_path: Path) -> None:
    wal = Wal(tmp_path / "nothing-wal")
    assert (wal.live_bytes(), wal.file_bytes()) == (0, 0)
    (tmp_path / "nothing-wal").write_bytes(b"short")
    assert wal.live_bytes() == 0


def test_log_fits_where_the_file_system_does_not_count_its_blocks() -> None:
    assert os.statvfs("/proc").f_blocks == 0
    wal = Wal(Path("/proc/cordata.db-wal"))
    assert wal.has_room() and not wal.exceeds_disk(1)
