"""The application of "Events that are kept", with its SQL."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.host.documents import blocks

from cordata import EventStore, NewEvent, Row, Tx
from cordata.eventstore.inspection import Subscriptions
from cordata.testing import open_app


@pytest.fixture
def accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, imported from a directory in which its reader wrote it."""
    (text,) = [one for one in blocks("python") if one.startswith("# accounts.py\n")]
    (tmp_path / "accounts.py").write_text(text)
    for text in blocks("sql"):
        path = tmp_path / text.splitlines()[0].removeprefix("-- ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "accounts_sql" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("accounts")
    for name in ("accounts", "accounts_sql"):
        sys.modules.pop(name, None)


async def test_tables_of_the_documents_are_built_and_built_again(accounts: Any) -> None:
    async def totals(tx: Tx) -> list[Row]:
        return await tx.fetch_all("balance.all")

    async with open_app(accounts.app) as harness:
        await harness.append("account-7", "deposited", {"amount": 10})
        assert await accounts.withdraw(harness.ctx, 7, 4) == 2
        with pytest.raises(ValueError, match="not enough"):
            await accounts.withdraw(harness.ctx, 7, 7)
        assert await harness.drain() == 2
        expected = [{"account": "account-7", "total": 6}]
        assert [dict(row) for row in await harness.ctx.store.read(totals)] == expected
        (name,) = accounts.app.subscriptions
        await Subscriptions(harness.ctx.store).reset(
            name, "start", clear=accounts.app.subscriptions[name].clear
        )
        assert await harness.ctx.store.read(totals) == []
        assert await harness.drain() == 2
        assert [dict(row) for row in await harness.ctx.store.read(totals)] == expected


async def test_withdrawal_of_the_documents_counts_the_whole_stream_when_it_is_long(
    accounts: Any,
) -> None:
    async def deposit(tx: Tx) -> int:
        coins = [NewEvent(type="deposited", payload={"amount": 1})] * 600
        return await EventStore(tx).append("account-8", coins, expected=None)

    async with open_app(accounts.app) as harness:
        assert await harness.ctx.run(deposit) == 600
        assert await accounts.withdraw(harness.ctx, 8, 600) == 601
        with pytest.raises(ValueError, match="not enough"):
            await accounts.withdraw(harness.ctx, 8, 1)


def test_commands_of_the_documents_are_those_there_are() -> None:
    from cordata.cli import cordata

    typed = re.findall(
        r"^\$ cordata (events|subscriptions) (\w+)", "".join(blocks("console")), re.M
    )
    assert len(typed) == 4
    for group, name in typed:
        command = cordata.get_command(None, group)  # type: ignore[arg-type]
        assert name in command.commands  # type: ignore[union-attr]
