"""Migrations: each once, whatever a second process or an older program does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import CHAINS, SQL

from cordata.errors import LeaseLost
from cordata.store import Chain, Fence, SchemaError


class Code:
    """A chain of migrations of an application of its own, written by the test."""

    def __init__(self, folder: Path, dialect: str) -> None:
        self.chain = Chain("shop", folder.name)
        self._migrations = folder / dialect / "migrations"
        self._migrations.mkdir(parents=True)

    def write(self, name: str, script: str) -> Path:
        """Add a script."""
        path = self._migrations / name
        path.write_text(script)
        return path


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opener) -> Code:
    """An empty chain."""
    folder = tmp_path / "code" / f"shop_{tmp_path.name}"
    monkeypatch.syspath_prepend(str(folder.parent))
    return Code(folder, opened.dialect)


async def test_schema_is_current_when_everything_was_applied(opened: Opener) -> None:
    async with opened() as store, opened() as other:
        assert await other.schema_current(CHAINS)
        assert await store.migrate(CHAINS) == []
        assert not await store.schema_current([Chain("another", SQL)])


async def test_migrations_run_in_order_when_several_are_pending(opened: Opener, code: Code) -> None:
    code.write("0001_first.sql", "CREATE TABLE shop (id INTEGER PRIMARY KEY);")
    code.write("0002_second.sql", "ALTER TABLE shop ADD COLUMN name TEXT;")
    told: list[str] = []
    async with opened() as store:
        pending = await store.pending([code.chain])
        applied = await store.migrate([code.chain], progress=told.append)
        assert applied == pending
        assert [str(a) for a in applied] == ["shop 0001_first", "shop 0002_second"]
        assert told == ["applying shop 0001_first", "applying shop 0002_second"]
        assert await store.schema_current([code.chain])


async def test_migration_leaves_nothing_when_a_statement_fails(opened: Opener, code: Code) -> None:
    path = code.write("0001_bad.sql", "CREATE TABLE a (x INTEGER);\nCREATE TABLE a (y INTEGER);")
    async with opened() as store:
        with pytest.raises(SchemaError, match=r"shop 0001_bad.*already exists") as caught:
            await store.migrate([code.chain])
        assert "CREATE TABLE a (y INTEGER)" in (caught.value.hint or "")
    path.write_text("CREATE TABLE a (x INTEGER);")
    async with opened() as store:
        assert len(await store.migrate([code.chain])) == 1


async def test_script_is_refused_when_it_ends_the_transaction(opened: Opener, code: Code) -> None:
    code.write("0001_bad.sql", "CREATE TABLE a (x INTEGER);\nCOMMIT;\nCREATE TABLE b (y INTEGER);")
    async with opened() as store:
        with pytest.raises(SchemaError, match="must not commit"):
            await store.migrate([code.chain])
        assert not await store.schema_current([code.chain])


async def test_chain_is_refused_when_it_has_gaps_or_bad_names(opened: Opener, code: Code) -> None:
    code.write("0001_a.sql", "")
    code.write("0003_c.sql", "")
    code.write("4-d.sql", "")
    async with opened() as store:
        with pytest.raises(SchemaError) as caught:
            await store.migrate([code.chain])
        assert "expected number 0002" in str(caught.value)
        assert "4-d.sql" in str(caught.value)


async def test_program_is_refused_when_a_migration_was_renamed(opened: Opener, code: Code) -> None:
    path = code.write("0001_a.sql", "CREATE TABLE a (x INTEGER);")
    async with opened() as store:
        await store.migrate([code.chain])
    path.rename(path.with_name("0001_b.sql"))
    async with opened() as store:
        with pytest.raises(SchemaError, match="shop 0001_a is in the database, 'b'"):
            await store.schema_current([code.chain])


async def test_program_is_refused_when_the_text_of_an_applied_migration_changed(
    opened: Opener, code: Code
) -> None:
    path = code.write("0001_a.sql", "CREATE TABLE a (x INTEGER);")
    async with opened() as store:
        await store.migrate([code.chain])
        assert await store.schema_current([code.chain])
    path.write_text("CREATE TABLE a (x INTEGER, y INTEGER);")
    code.write("0002_b.sql", "CREATE TABLE b (x INTEGER);")
    async with opened() as store:
        for asked in (store.migrate, store.schema_current, store.pending):
            with pytest.raises(SchemaError, match="text of shop 0001_a has changed") as caught:
                await asked([code.chain])
            assert "next number" in (caught.value.hint or "")
    path.write_bytes(b"CREATE TABLE a (x INTEGER);")
    async with opened() as store:
        assert [str(one) for one in await store.migrate([code.chain])] == ["shop 0002_b"]


async def test_older_program_works_when_the_schema_is_newer_by_additions(
    opened: Opener, code: Code
) -> None:
    code.write("0001_a.sql", "CREATE TABLE a (x INTEGER);")
    newer = code.write("0002_b.sql", "ALTER TABLE a ADD COLUMN y INTEGER;")
    async with opened() as store:
        await store.migrate([code.chain])
    newer.unlink()
    async with opened() as store:
        assert await store.schema_current([code.chain])
        assert await store.migrate([code.chain]) == []


async def test_older_program_is_refused_when_the_schema_is_of_the_next_major(
    opened: Opener, code: Code
) -> None:
    code.write("0001_a.sql", "CREATE TABLE a (x INTEGER);")
    newer = code.write("1000_b.sql", "DROP TABLE a;")
    async with opened() as store:
        await store.migrate([code.chain])
    newer.unlink()
    async with opened() as store:
        with pytest.raises(SchemaError, match=r"shop 1000_b, this program ends at 0001"):
            await store.schema_current([code.chain])
        with pytest.raises(SchemaError):
            await store.migrate([code.chain])


async def test_stale_primary_cannot_migrate_when_its_term_is_over(
    opened: Opener, code: Code
) -> None:
    code.write("0001_a.sql", "CREATE TABLE a (x INTEGER);")
    async with opened() as store:
        with pytest.raises(LeaseLost):
            await store.migrate([code.chain], fence=Fence("primary", 99))
        assert not await store.schema_current([code.chain])
