"""Migrations: each once, whatever a second process or an older program does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import CHAINS, SQL

from cordata.errors import LeaseLost
from cordata.store import Chain, Fence, SchemaError


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """An empty chain of an application of its own, written by the test."""
    folder = tmp_path / "code" / f"shop_{tmp_path.name}"
    (folder / "sqlite" / "migrations").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder.parent))
    return Chain("shop", folder.name)


def write(tmp_path: Path, chain: Chain, name: str, script: str) -> Path:
    path = tmp_path / "code" / chain.package / "sqlite" / "migrations" / name
    path.write_text(script)
    return path


async def test_schema_is_current_when_everything_was_applied(opened: Opener) -> None:
    async with opened() as store, opened() as other:
        assert await other.schema_current(CHAINS)
        assert await store.migrate(CHAINS) == []
        assert not await store.schema_current([Chain("another", SQL)])


async def test_migrations_run_in_order_when_several_are_pending(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    write(tmp_path, chain, "0001_first.sql", "CREATE TABLE shop (id INTEGER PRIMARY KEY) STRICT;")
    write(tmp_path, chain, "0002_second.sql", "ALTER TABLE shop ADD COLUMN name TEXT;")
    told: list[str] = []
    async with opened() as store:
        pending = await store.pending([chain])
        applied = await store.migrate([chain], progress=told.append)
        assert applied == pending
        assert [str(a) for a in applied] == ["shop 0001_first", "shop 0002_second"]
        assert told == ["applying shop 0001_first", "applying shop 0002_second"]
        assert await store.schema_current([chain])


async def test_migration_leaves_nothing_when_a_statement_fails(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    path = write(tmp_path, chain, "0001_bad.sql", "CREATE TABLE a (x);\nCREATE TABLE a (y);")
    async with opened() as store:
        with pytest.raises(SchemaError, match=r"shop 0001_bad.*already exists") as caught:
            await store.migrate([chain])
        assert "CREATE TABLE a (y)" in (caught.value.hint or "")
    path.write_text("CREATE TABLE a (x);")
    async with opened() as store:
        assert len(await store.migrate([chain])) == 1


async def test_script_is_refused_when_it_ends_the_transaction(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    write(tmp_path, chain, "0001_bad.sql", "CREATE TABLE a (x);\nCOMMIT;\nCREATE TABLE b (y);")
    async with opened() as store:
        with pytest.raises(SchemaError, match="must not commit"):
            await store.migrate([chain])
        assert not await store.schema_current([chain])


async def test_chain_is_refused_when_it_has_gaps_or_bad_names(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    write(tmp_path, chain, "0001_a.sql", "")
    write(tmp_path, chain, "0003_c.sql", "")
    write(tmp_path, chain, "4-d.sql", "")
    async with opened() as store:
        with pytest.raises(SchemaError) as caught:
            await store.migrate([chain])
        assert "expected number 0002" in str(caught.value)
        assert "4-d.sql" in str(caught.value)


async def test_program_is_refused_when_a_migration_was_renamed(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    path = write(tmp_path, chain, "0001_a.sql", "CREATE TABLE a (x);")
    async with opened() as store:
        await store.migrate([chain])
    path.rename(path.with_name("0001_b.sql"))
    async with opened() as store:
        with pytest.raises(SchemaError, match="shop 0001_a is in the database, 'b'"):
            await store.schema_current([chain])


async def test_older_program_works_when_the_schema_is_newer_by_additions(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    write(tmp_path, chain, "0001_a.sql", "CREATE TABLE a (x);")
    newer = write(tmp_path, chain, "0002_b.sql", "ALTER TABLE a ADD COLUMN y;")
    async with opened() as store:
        await store.migrate([chain])
    newer.unlink()
    async with opened() as store:
        assert await store.schema_current([chain])
        assert await store.migrate([chain]) == []


async def test_older_program_is_refused_when_the_schema_is_of_the_next_major(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    write(tmp_path, chain, "0001_a.sql", "CREATE TABLE a (x);")
    newer = write(tmp_path, chain, "1000_b.sql", "DROP TABLE a;")
    async with opened() as store:
        await store.migrate([chain])
    newer.unlink()
    async with opened() as store:
        with pytest.raises(SchemaError, match=r"shop 1000_b, this program ends at 0001"):
            await store.schema_current([chain])
        with pytest.raises(SchemaError):
            await store.migrate([chain])


async def test_stale_primary_cannot_migrate_when_its_term_is_over(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    write(tmp_path, chain, "0001_a.sql", "CREATE TABLE a (x);")
    async with opened() as store:
        with pytest.raises(LeaseLost):
            await store.migrate([chain], fence=Fence("primary", 99))
        assert not await store.schema_current([chain])


async def test_broken_reference_is_found_when_a_script_turns_foreign_keys_off(
    opened: Opener, tmp_path: Path, chain: Chain
) -> None:
    tables = "CREATE TABLE a (id INTEGER PRIMARY KEY);\nCREATE TABLE b (a REFERENCES a (id));\n"
    write(tmp_path, chain, "0001_a.sql", tables + "INSERT INTO a VALUES (1);")
    path = write(tmp_path, chain, "0002_b.sql", "-- foreign_keys: off\nINSERT INTO b VALUES (2);")
    async with opened() as store:
        with pytest.raises(SchemaError, match="a row of b points to no row of a"):
            await store.migrate([chain])
    path.write_text("-- foreign_keys: off\nINSERT INTO b VALUES (1);")
    async with opened() as store:
        assert len(await store.migrate([chain])) == 1
