"""The connection is lost during a COMMIT: it happened or it did not, and the store finds out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.integration.postgres.parts import (
    Cutter,
    Wire,
    deposit,
    deposit_batched,
    deposit_solo,
    notes_there,
    opened,
)
from tests.servers.postgres import PostgresServer

from cordata.errors import StoreUnavailable
from cordata.store import Store

Put = Callable[[Store, str], Awaitable[None]]

PUTS = pytest.mark.parametrize("put", [deposit, deposit_solo, deposit_batched])


@PUTS
@pytest.mark.parametrize("answered", [True, False])
async def test_unit_is_committed_once_when_the_wire_is_cut_during_its_commit(
    postgres: PostgresServer, database: str, put: Put, answered: bool
) -> None:
    async with Wire(postgres.port) as wire:
        async with opened(wire.url(database), prepared_statements=False) as store:
            for number in range(5):
                wire.look = cutter = Cutter(answered=answered)
                await put(store, f"n{number}")
                assert cutter.cuts == 1
            assert store.stats().state == "ok"
        assert sorted(notes_there(postgres, database)) == [f"n{number}" for number in range(5)]


@PUTS
async def test_caller_is_told_that_nobody_knows_when_numbers_of_transactions_mean_nothing_any_more(
    postgres: PostgresServer, database: str, put: Put
) -> None:
    """After a crash of the server, or on another one, the number may be another's."""
    async with Wire(postgres.port) as wire:
        async with opened(wire.url(database), prepared_statements=False) as store:
            await put(store, "before")
            wire.look = Cutter(answered=True)
            postgres.execute("SELECT pg_stat_reset_shared('bgwriter')")  # as a crash does
            with pytest.raises(StoreUnavailable, match="not known"):
                await put(store, "n")
            await put(store, "after")
            assert store.stats().state == "ok"


async def test_statistics_begin_anew_when_the_server_crashed_and_only_then() -> None:
    """What the store takes for the sign of a crash."""
    ask = "SELECT stats_reset FROM pg_stat_bgwriter"
    with PostgresServer() as server:
        (first,) = server.execute(ask)
        server.restart()
        assert server.execute(ask) == [first]
        server.kill()
        server.start()
        assert server.execute(ask) != [first]
