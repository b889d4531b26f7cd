"""What is particular to the embedded store: its file, its threads, its neighbours in a shell."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.store.parts import deposit, notes_on_disk, opened
from tests.raw import raw
from tests.waiting import until_async

from cordata.clock import monotonic
from cordata.errors import ConfigError, StoreUnavailable, TransactionTimeout
from cordata.store import Chain, SchemaError, Tx, UnitMisuse


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_settings_are_those_of_the_design_when_opened(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "a")
        connection = store._connection.open()

        def pragma(name: str) -> object:
            return connection.execute(f"PRAGMA {name}").fetchone()[0]

        assert pragma("journal_mode") == "wal"
        assert pragma("synchronous") == 2
        assert pragma("wal_autocheckpoint") == 0
        assert pragma("foreign_keys") == 1
        assert pragma("mmap_size") == 0
        assert pragma("page_size") == 4096


async def test_units_wait_for_a_shell_when_it_holds_a_write_transaction(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "before")
        with closing(sqlite3.connect(tmp_path / "cordata.db", isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            shell.execute("INSERT INTO account VALUES ('shell', 1)")
            waiting = asyncio.ensure_future(deposit(store, "after"))

            async def solo() -> None:
                async with store.transaction() as tx:
                    await tx.execute("account.add", id="solo", balance=0)

            also = asyncio.ensure_future(solo())
            begun = monotonic()
            while monotonic() < begun + 0.3:  # noqa: ASYNC110 - the loop stays alive meanwhile
                await asyncio.sleep(0.01)
            assert not waiting.done() and not also.done()
            shell.execute("COMMIT")
            await asyncio.gather(waiting, also)
        assert store.stats().state == "ok"
    assert notes_on_disk(tmp_path) == ["after", "before"]


async def test_shell_can_write_when_the_store_is_busy(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "first")
        stop = threading.Event()
        written = []

        def shell() -> None:
            path = tmp_path / "cordata.db"
            try:
                with closing(sqlite3.connect(path, timeout=60.0, isolation_level=None)) as other:
                    for number in range(20):
                        other.execute("INSERT INTO account VALUES (?, 1)", (f"s{number}",))
                        written.append(number)
            finally:
                stop.set()

        thread = threading.Thread(target=shell)
        thread.start()
        number = 0
        while not stop.is_set():
            number += 1
            await asyncio.gather(*(deposit(store, f"{number}-{n}") for n in range(5)))
        thread.join()
        assert len(written) == 20


async def test_loop_stays_responsive_when_a_read_is_slow(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        slow = asyncio.ensure_future(store.read(lambda tx: tx.fetch_one("slow")))
        turns = 0
        while not slow.done():
            await asyncio.sleep(0.001)
            turns += 1
        row = slow.result()
        assert row is not None and row["count"] == 1_000_000
        assert turns > 10


async def test_reads_go_on_however_many_were_stopped(tmp_path: Path) -> None:
    """SQLite counts a statement's steps over all its runs: now and then the look at the clock falls
    into the ROLLBACK, which must not be stopped.
    """
    async with opened(tmp_path) as store:
        snapshots = store._reader._inline
        for _ in range(1200):
            with pytest.raises(TransactionTimeout):
                snapshots.read(lambda tx: tx.fetch_one("forever"), 0.0)
        assert await store.read(lambda tx: tx.fetch_all("mail.mails")) == []


async def test_reads_run_side_by_side_when_some_are_slow(tmp_path: Path) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    async def slow(tx: Tx) -> None:
        if threading.current_thread() is threading.main_thread():
            await tx.fetch_one("forever")  # longer than it may take on the loop's own thread
        begun.release()
        go_on.wait(60)

    async with opened(tmp_path, readers=2) as store:
        tasks = [asyncio.ensure_future(store.read(slow)) for _ in range(4)]
        for _ in range(2):
            await asyncio.to_thread(begun.acquire)
        assert await store.read(lambda tx: tx.fetch_all("entry.notes")) == []
        assert not begun.acquire(blocking=False)  # there are two threads, and both are taken
        tasks[3].cancel()
        go_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [False, False, False, True]


async def test_lock_is_free_when_a_block_was_left_while_its_first_write_waited(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, transaction_timeout_s=3600.0) as one, opened(tmp_path) as two:
        async with two.transaction() as holder:
            await holder.execute("account.add", id="held", balance=0)
            with pytest.raises(LookupError):
                async with one.transaction() as tx:
                    write = asyncio.ensure_future(tx.execute("account.add", id="a", balance=0))
                    await asyncio.sleep(0)  # it waits for the lock now
                    raise LookupError
        with pytest.raises(UnitMisuse, match="after its block"):
            await write
        async with asyncio.timeout(60):
            await deposit(one, "next")
    assert notes_on_disk(tmp_path) == ["next"]


async def test_nothing_leaks_when_stores_are_opened_and_closed(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            await asyncio.gather(*(deposit(store, f"{os.urandom(8).hex()}") for _ in range(5)))
            await store.read(lambda tx: tx.fetch_one("pause"))
            async with store.transaction() as tx:
                await tx.execute("account.add", id=os.urandom(4).hex(), balance=0)

    await use()
    gc.collect()  # what tests before this one left open
    await asyncio.sleep(0.05)
    files, threads = open_files(), threading.active_count()
    for _ in range(20):
        await use()

    def is_clean() -> bool:
        return open_files() <= files and threading.active_count() <= threads

    await until_async(is_clean)  # a thread that was told to end may take its time


async def test_idle_store_uses_no_processor_when_someone_waits(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "a")
        await store.read(lambda tx: tx.fetch_one("pause"))
        waiting = asyncio.ensure_future(store.wait("t", 60.0))
        await asyncio.sleep(0.1)
        for _ in range(10):  # other threads of this process may do something meanwhile
            before = resource.getrusage(resource.RUSAGE_SELF)
            await asyncio.sleep(1.0)
            after = resource.getrusage(resource.RUSAGE_SELF)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            switches = after.ru_nvcsw - before.ru_nvcsw
            if used < 0.01 and switches < 20:
                break
        waiting.cancel()
        assert used < 0.01 and switches < 20


async def test_closing_waits_for_units_when_some_are_queued(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        tasks = [asyncio.ensure_future(deposit(store, str(n))) for n in range(50)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        with pytest.raises(StoreUnavailable):
            await deposit(store, "late")
    assert len(notes_on_disk(tmp_path)) == 50


async def test_first_starts_agree_when_many_open_at_once(tmp_path: Path) -> None:
    async def start(number: int) -> None:
        async with opened(tmp_path) as store:
            await deposit(store, str(number))

    await asyncio.gather(*map(start, range(6)))
    assert len(notes_on_disk(tmp_path)) == 6


async def test_unit_runs_alone_when_a_statement_ends_the_transaction(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:

        async def rude(tx: Tx) -> None:
            await raw(tx, "ROLLBACK")

        results = await asyncio.gather(
            deposit(store, "a"), store.run(rude), deposit(store, "b"), return_exceptions=True
        )
        assert results[0] is None and results[2] is None
    assert notes_on_disk(tmp_path) == ["a", "b"]


async def test_broken_reference_is_found_when_a_script_turns_foreign_keys_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "code" / f"shop_{tmp_path.name}"
    migrations = folder / "sqlite" / "migrations"
    migrations.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder.parent))
    chain = Chain("shop", folder.name)
    tables = "CREATE TABLE a (id INTEGER PRIMARY KEY);\nCREATE TABLE b (a REFERENCES a (id));\n"
    (migrations / "0001_a.sql").write_text(tables + "INSERT INTO a VALUES (1);")
    path = migrations / "0002_b.sql"
    path.write_text("-- foreign_keys: off\nINSERT INTO b VALUES (2);")
    async with opened(tmp_path) as store:
        with pytest.raises(SchemaError, match="a row of b points to no row of a"):
            await store.migrate([chain])
    path.write_text("-- foreign_keys: off\nINSERT INTO b VALUES (1);")
    async with opened(tmp_path) as store:
        assert len(await store.migrate([chain])) == 1


@pytest.mark.parametrize("begin", ["sqlite://", "sqlite:///"])
async def test_url_names_another_file_when_it_has_a_path(tmp_path: Path, begin: str) -> None:
    async with opened(tmp_path, url=f"{begin}{tmp_path}/else where.db") as store:
        await deposit(store, "a")
    assert (tmp_path / "else where.db").exists() and (tmp_path / "else where.db.lock").exists()
    for url in ("postgresql://x", "sqlite:///", "sqlite:////", "sqlite:x"):
        with pytest.raises(ConfigError, match="url"):
            async with opened(tmp_path, url=url):
                pass


async def test_processes_still_take_turns_when_the_lock_file_was_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as two:
        await asyncio.gather(deposit(one, "1"), deposit(two, "2"))
        (tmp_path / "write.lock").unlink()
        notes = [f"n{number:03d}" for number in range(100)]
        await asyncio.gather(*(deposit((one, two)[n % 2], note) for n, note in enumerate(notes)))
        async with one.transaction() as tx:
            await tx.execute("account.add", id="held", balance=0)
            waiting = asyncio.ensure_future(deposit(two, "z"))
            await asyncio.sleep(0.1)
            assert not waiting.done()
        await waiting
        assert (tmp_path / "write.lock").exists()
    assert notes_on_disk(tmp_path) == ["1", "2", *notes, "z"]
