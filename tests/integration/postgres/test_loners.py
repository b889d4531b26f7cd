"""Units that run alone, and for whom they wait."""

from __future__ import annotations

import asyncio

from tests.integration.postgres.parts import opened

from cordata.store import Tx


async def test_unit_that_runs_alone_does_not_wait_for_all_of_another_kind(database: str) -> None:
    async with opened(database, pool_size=2) as store:  # one at once
        began = list[str]()

        async def frequent(tx: Tx) -> None:
            began.append("frequent")
            await tx.fetch_one("account.get_to_change", id="a")

        async def rare(tx: Tx) -> None:
            began.append("rare")
            await tx.fetch_one("account.get_to_change", id="b")

        for _ in range(2):  # both kinds are known to run alone then
            await asyncio.gather(*[store.run(unit) for unit in (frequent, rare) * 2])
        began.clear()
        await asyncio.gather(*[store.run(frequent) for _ in range(12)], store.run(rare))
        assert began.index("rare") <= 2 and len(began) == 13
