"""Who may take a place: lanes, runs of one key, and the end."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from tests.unit.engine.messages import message

from cordata.broker.message import NOTHING, Due, Want, claimable
from cordata.config.sections import EngineConfig
from cordata.core.lane import all_places, backfill_places, run_length
from cordata.core.outbox import BACKFILL
from cordata.registry import Handler, HandlerFunction
from cordata.services.places import Lane, Places


def places(concurrency: int, *, key: bool = False) -> Places:
    handler = Handler(
        type="t",
        group="g",
        function=cast(HandlerFunction, None),
        retries=1,
        concurrency=concurrency,
        timeout_s=1.0,
        key=key,
    )
    return Places(handler, EngineConfig())


async def taken(group: Places, count: int) -> list[tuple[Lane, list[int]]]:
    """What so many places get, without waiting for more."""
    tasks = [asyncio.ensure_future(group.take()) for _ in range(count)]
    for _ in range(3):
        await asyncio.sleep(0)
    found = [task.result() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [(one[0], [int(m.id) for m in one[1]]) for one in found if one is not None]


@pytest.mark.parametrize(
    ("concurrency", "backfill", "together"), [(1, 1, 2), (2, 1, 2), (4, 1, 4), (16, 4, 16)]
)
def test_backfill_never_has_all_places(concurrency: int, backfill: int, together: int) -> None:
    assert backfill_places(concurrency) == backfill
    assert all_places(concurrency) == together
    assert backfill < together


def test_run_is_what_one_handles_in_a_moment() -> None:
    assert run_length(0.0, batch=100) == 1
    assert run_length(0.0001, batch=100) == 100
    assert run_length(0.025, batch=100) == 10
    assert run_length(5.0, batch=100) == 1


def end(group: Places, duration_s: float) -> None:
    """The live run that began first ends."""
    run = next(iter(group.live.running.values()))
    group.ended(group.live, run, duration_s, 1)


async def test_live_goes_first_and_backfill_has_its_share_of_places() -> None:
    group = places(8)
    group.put([message(n, lane=BACKFILL) for n in range(10)])
    group.put([message(n) for n in range(10, 13)])
    assert [ids for _, ids in await taken(group, group.count)] == [[10], [11], [12], [0], [1]]
    assert (len(group.live.running), len(group.backfill.running)) == (3, 2)


async def test_live_finds_a_free_place_when_backfill_is_slow() -> None:
    group = places(4)
    group.put([message(n, lane=BACKFILL) for n in range(10)])
    assert len(await taken(group, group.count)) == 1
    group.put([message(n) for n in range(10, 20)])
    assert [ids for _, ids in await taken(group, group.count - 1)] == [[10], [11], [12]]


async def test_single_place_is_for_live_and_backfill_has_one_beside_it() -> None:
    group = places(1)
    group.put([message(0, lane=BACKFILL)])
    assert await taken(group, 2) == [(group.backfill, [0])]
    group.put([message(1), message(2)])
    assert await taken(group, 1) == [(group.live, [1])]
    assert await taken(group, 1) == []  # one at a time
    end(group, 0.1)
    assert await taken(group, 1) == [(group.live, [2])]


async def test_backfill_begins_when_the_last_live_one_has_begun() -> None:
    """The place that had to leave it alone meanwhile is woken for it."""
    group = places(1)
    group.put([message(1), message(2)])
    assert await taken(group, 1) == [(group.live, [1])]
    group.put([message(3, lane=BACKFILL)])
    waiting = asyncio.ensure_future(group.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    end(group, 0.1)
    assert await taken(group, 1) == [(group.live, [2])]
    assert await waiting == (group.backfill, (message(3, lane=BACKFILL),))


async def test_messages_of_one_key_are_one_run() -> None:
    group = places(4, key=True)
    keys = ["a", "a", "b", None, None, "c", "c"]
    group.put([message(n, order_key=key) for n, key in enumerate(keys)])
    runs = [ids for _, ids in await taken(group, 10)]
    assert runs == [[0, 1], [2], [3], [4]]  # four places
    for _ in runs:
        end(group, 0.001)
    assert [ids for _, ids in await taken(group, 10)] == [[5, 6]]
    assert group.want().run == EngineConfig().batch


async def test_nothing_begins_after_the_end_and_what_waits_is_given_back() -> None:
    group = places(2, key=True)
    waiting = asyncio.ensure_future(group.take())
    await asyncio.sleep(0)
    assert group.close() == []
    assert await waiting is None
    group = places(2, key=True)
    group.put([message(n, order_key="k") for n in range(3)] + [message(9, lane=BACKFILL)])
    assert [m.id for m in group.close()] == [0, 1, 2, 9]
    assert await group.take() is None


@pytest.mark.parametrize(
    ("want", "due", "expected"),
    [
        (Want(live=1), Due(live=5), True),
        (Want(live=1), Due(live=6), False),
        (Want(live=0), Due(live=5), False),
        (Want(live=1, backfill=1), Due(backfill=5), True),
        (Want(live=0, backfill=1), Due(live=5, backfill=5), False),
        (Want(live=1, backfill=1), Due(live=9, backfill=5), True),
        (Want(live=1, backfill=0), Due(backfill=5), False),
        (Want(live=1, backfill=1), NOTHING, False),
    ],
)
def test_claimable_is_live_first_and_backfill_only_without_it(
    want: Want, due: Due, expected: bool
) -> None:
    assert claimable({"g": want}, {"g": due}, 5) is expected


def test_backfill_of_one_group_waits_for_what_is_live_in_another() -> None:
    wanted = {"a": Want(live=1, backfill=1), "b": Want(live=0)}
    assert not claimable(wanted, {"a": Due(backfill=1), "b": Due(live=1)}, 5)
    assert claimable(wanted, {"a": Due(backfill=1), "b": Due(live=7)}, 5)
