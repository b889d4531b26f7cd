"""The real faults: a full disk, a read-only one, a damaged, a missing and a replaced file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.store.parts import (
    abort,
    deposit,
    fill,
    mount,
    needs_root,
    notes_on_disk,
    opened,
    real_disk,
    refused,
    small_disk,
    use_up,
)
from tests.waiting import until_async

from cordata import events
from cordata.errors import StoreFull, StoreUnavailable
from cordata.store import Store, Tx


def message_ids(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__.get("MESSAGE_ID", "") for record in caplog.records]


def states(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The states that the store has said to be in."""
    return [state for one in caplog.records if (state := one.__dict__.get("STORE_STATE"))]


async def heals(store: Store) -> None:
    """Without any traffic."""
    await until_async(lambda: store.stats().state == "ok")


async def overflow(store: Store) -> list[str]:
    """Write until the disk is full; the notes that were acknowledged."""
    taken: list[str] = []
    for number in range(10_000):
        try:
            await deposit(store, f"{number:05d}", size=4000)
        except StoreFull:
            return taken
        taken.append(f"{number:05d}")
    raise AssertionError("it never got full")


@needs_root
async def test_writes_fail_promptly_and_heal_when_the_disk_is_full_and_has_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", size="8m") as disk:
        async with opened(disk) as store:
            taken = [f"{number:05d}" for number in range(200)]
            await asyncio.gather(*(deposit(store, note, size=4000) for note in taken))
            use_up(disk)
            for attempt in range(3):
                async with asyncio.timeout(120):
                    tried = (refused(store, f"x{attempt}-{number}") for number in range(500))
                    results = await asyncio.gather(*tried)
                assert all(isinstance(result, StoreFull) for result in results)
                assert store.stats().state == "full" and "full" in store.stats().reason
                await asyncio.sleep(0.6)  # an attempt to heal lies in between
            # Reads go on.
            assert len(await store.read(lambda tx: tx.fetch_all("entry.notes"))) == len(taken)
            assert states(caplog) == ["full"]
            assert message_ids(caplog).count(events.DISK_FULL) == 1
            (disk / "filler").unlink()
            await store.checkpoint()
            await heals(store)
            await deposit(store, "after")
            assert states(caplog) == ["full", "ok"]
            assert message_ids(caplog).count(events.STORE_HEALED) == 1
        found = [note.rstrip(".") for note in notes_on_disk(disk)]
        assert found == [*taken, "after"]


@needs_root
async def test_exactly_what_was_acknowledged_is_stored_when_writes_fill_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", size="8m") as disk:
        async with opened(disk) as store:
            (disk / "filler").write_bytes(bytes(3 << 20))
            taken = await overflow(store)
            # Attempts to heal take the room that is left, if they come before the filler does.
            fill(disk / "filler")
            await asyncio.sleep(0.6)
            (disk / "filler").unlink()
            await store.checkpoint()
            await heals(store)
            await deposit(store, "after")
            changes = states(caplog)
            assert changes == ["full", "ok"] * (len(changes) // 2)
        found = [note.rstrip(".") for note in notes_on_disk(disk)]
        assert found == [*taken, "after"]


async def change(store: Store, times: int) -> None:
    """Commits that only write over what there is: the log grows, the database file does not."""

    async def unit(tx: Tx) -> None:
        await tx.execute("account.add_once", id="a", balance=0)
        await tx.execute("account.change", id="a", amount=1)

    for _ in range(times):
        await store.run(unit)


@needs_root
async def test_log_is_checkpointed_in_time_when_the_disk_is_smaller_than_its_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", size="4m") as disk:
        async with opened(disk) as store:
            await change(store, 2000)
            assert states(caplog) == []
            [row] = await store.read(lambda tx: tx.fetch_all("account.all"))
            assert row["balance"] == 2000


@needs_root
async def test_log_is_cut_when_the_disk_has_less_space_than_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="16m") as disk:
        async with opened(disk) as store:
            await change(store, 400)
            log = disk / "cordata.db-wal"
            size = log.stat().st_size
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            assert free > size
            (disk / "filler").write_bytes(bytes(free - size // 2))
            await change(store, 8)  # so many commits are between two looks at the disk
            await until_async(lambda: log.stat().st_size < size // 2)


@needs_root
async def test_full_disk_gets_the_space_of_the_log_back(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="8m") as disk:
        async with opened(disk) as store:
            await change(store, 1)
            await store.checkpoint()
            await change(store, 500)
            use_up(disk)
            assert isinstance(await refused(store, "x"), StoreFull)
            await heals(store)
            await deposit(store, "after")


@needs_root
async def test_neighbours_are_stored_when_one_unit_is_too_large_for_the_disk(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with opened(disk) as store:
            sizes = [0, 0, 8_000_000, 0, 0]
            results = await asyncio.gather(
                *(deposit(store, str(n), size) for n, size in enumerate(sizes)),
                return_exceptions=True,
            )
            assert [type(r).__name__ for r in results] == [
                "NoneType",
                "NoneType",
                "StoreFull",
                "NoneType",
                "NoneType",
            ]
        assert notes_on_disk(disk) == ["0", "1", "3", "4"]


@needs_root
async def test_opening_says_to_remount_when_the_file_system_is_read_only(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(StoreUnavailable, match="Read-only file system") as caught:
            async with opened(disk):
                pass
        assert "mount it read-write" in (caught.value.hint or "")


#: Writes to a database as the user who owns it, and prints the next step.
_AS_OWNER = """
import os, sqlite3, sys
from pathlib import Path
from cordata.store.sqlite.fault import translate
path = Path(sys.argv[1])
os.setuid(path.stat().st_uid)
try:
    sqlite3.connect(path).execute("CREATE TABLE note (id)")
except sqlite3.Error as error:
    print(translate(error, "write", folder=path.parent).hint)
"""


@needs_root
def test_hint_is_to_change_the_mode_when_the_owner_cannot_write() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's directories are closed to other users
        path = Path(name) / "cordata.db"
        path.touch(0o400)
        for one in (path.parent, path):
            os.chown(one, 65_534, 65_534)
        done = subprocess.run(
            [sys.executable, "-c", _AS_OWNER, path],
            env={**os.environ, "PYTHONPATH": "daemon"},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.strip() == f"{path} has the mode 0400: `chmod u+w {path}`"


@needs_root
async def test_nothing_is_acknowledged_when_the_disk_turns_read_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with real_disk(tmp_path) as disk:
        async with opened(disk) as store:
            await deposit(store, "before")
            abort(disk)
            async with asyncio.timeout(120):
                errors = await asyncio.gather(*(refused(store, f"x{n}") for n in range(200)))
            assert all(isinstance(error, StoreUnavailable) for error in errors)
            assert not any(isinstance(error, StoreFull) for error in errors)
            assert store.stats().state == "unavailable"
            with pytest.raises(StoreUnavailable):
                async with store.transaction() as tx:
                    await tx.execute("account.change", id="a", amount=1)
            assert message_ids(caplog).count(events.STORE_FAILED) == 1
        subprocess.run(["umount", disk], check=True)  # closed: nothing holds it any more
        mount(tmp_path)
        async with opened(disk) as store:
            await deposit(store, "after")
        assert notes_on_disk(disk) == ["after", "before"]


async def test_file_is_taken_up_again_when_it_was_gone_for_a_while(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "before")
        await store.checkpoint()
        (tmp_path / "cordata.db").rename(tmp_path / "elsewhere")
        error = await refused(store, "x")
        assert isinstance(error, StoreUnavailable)
        assert "put the file back" in (error.hint or "")
        assert store.stats().state == "unavailable"
        (tmp_path / "elsewhere").rename(tmp_path / "cordata.db")
        await heals(store)
        await deposit(store, "after")
    assert notes_on_disk(tmp_path) == ["after", "before"]


async def test_writes_are_refused_for_good_when_another_file_takes_its_place(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "before")
        backup = tmp_path / "backup"
        with closing(sqlite3.connect(tmp_path / "cordata.db")) as source:
            with closing(sqlite3.connect(backup)) as target:
                source.backup(target)
        await deposit(store, "after the backup")
        kept = backup.read_bytes()
        backup.rename(tmp_path / "cordata.db")
        for _ in range(2):
            error = await refused(store, "x")
            assert isinstance(error, StoreUnavailable)
            assert "delete cordata.db-wal" in (error.hint or "")
            await asyncio.sleep(0.6)  # an attempt to heal lies in between
        assert store.stats().state == "unavailable"
    assert (tmp_path / "cordata.db").read_bytes() == kept


async def test_open_makes_no_new_database_of_an_emptied_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "before")
    (tmp_path / "cordata.db").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="is empty, although"):
        async with opened(tmp_path):
            pass
    assert (tmp_path / "cordata.db").read_bytes() == b""


async def test_open_names_the_next_step_when_the_file_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "before")
    (tmp_path / "cordata.db").unlink()
    with pytest.raises(StoreUnavailable, match="is gone") as caught:
        async with opened(tmp_path):
            pass
    assert "write.lock" in (caught.value.hint or "")
    assert not (tmp_path / "cordata.db").exists()
    (tmp_path / "write.lock").unlink()
    async with opened(tmp_path) as store:
        await deposit(store, "anew")


async def test_open_names_the_next_step_when_the_file_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "cordata.db").write_bytes(b"not a database at all" * 500)
    with pytest.raises(StoreUnavailable, match="not a database") as caught:
        async with opened(tmp_path):
            pass
    assert "restore a backup" in (caught.value.hint or "")


async def test_reads_and_writes_say_so_when_pages_are_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as store:
        for number in range(200):
            await deposit(store, str(number), size=700)
    pages = (tmp_path / "cordata.db").stat().st_size // 4096
    with (tmp_path / "cordata.db").open("r+b") as file:
        file.seek(pages // 2 * 4096)  # the entries came last
        file.write(os.urandom((pages - pages // 2) * 4096))
    async with opened(tmp_path, migrate=False) as store:
        with pytest.raises(StoreUnavailable):
            await store.read(lambda tx: tx.fetch_all("entry.notes"))
        errors = [await refused(store, f"x{n}") for n in range(20)]
        assert all(isinstance(error, StoreUnavailable) for error in errors)
        assert store.stats().state == "unavailable"
        assert message_ids(caplog).count(events.STORE_FAILED) == 1
        assert errors[0] is not None and "recover" in (errors[0].hint or "")


async def test_open_names_the_directory_when_it_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere") as caught:
        async with opened(tmp_path / "nowhere"):
            pass
    assert "state directory" in (caught.value.hint or "")


async def test_files_belong_to_their_owner_only_when_the_umask_is_open(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened(tmp_path) as store:
            await deposit(store, "a")
            for name in ("cordata.db", "cordata.db-wal", "cordata.db-shm", "write.lock"):
                assert (tmp_path / name).stat().st_mode & 0o777 == 0o600, name
            for path in (tmp_path / "wake").iterdir():
                assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
