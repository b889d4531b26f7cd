"""Deadlines of many items behind one timer."""

from __future__ import annotations

import asyncio
from time import monotonic

from cordata.pool.client.deadlines import Deadlines


def test_item_is_due_once_and_never_early_and_a_cleared_one_never() -> None:
    async def test() -> None:
        found: list[str] = []
        done = asyncio.get_running_loop().create_future()
        at: dict[str, float] = {}

        def due(name: str) -> None:
            assert monotonic() >= at[name]
            found.append(name)
            if name == "first":
                deadlines.clear("cleared by another one")
            if name == "last":
                done.set_result(None)

        deadlines = Deadlines(due)
        now = monotonic()
        for name, delay_s in (
            ("last", 0.06),
            ("first", 0.01),
            ("cleared by another one", 0.01),
            ("moved", 0.001),
            ("cleared", 0.001),
            ("far", 60.0),
        ):
            at[name] = now + delay_s
            deadlines.set(name, at[name])
        at["moved"] = now + 0.03
        deadlines.set("moved", at["moved"])
        deadlines.clear("cleared")
        deadlines.clear("nobody")
        await done
        # A machine that was busy until all were due finds them in one scan, in no order.
        assert sorted(found) == ["first", "last", "moved"]
        assert deadlines.items() == ["far"]
        deadlines.close()
        assert deadlines.items() == []

    asyncio.run(test())
