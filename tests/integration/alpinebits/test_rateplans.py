"""Rate plans from the push to who asks for base rates, on both stores."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import psycopg
import pytest
from tests.contract.pool.running import running
from tests.integration.alpinebits.hotel_data import plan, pull_plans, push_plans, rate
from tests.integration.alpinebits.hub import (
    Hub,
    error_of,
    open_hub,
    open_worker,
)
from tests.integration.engine.stores import url_of
from tests.raw import until_blocked

from alpinehub.alpinebits.actions import rate_plans
from alpinehub.alpinebits.call import POOL_BYTES
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.rules import overlay
from cordata.pool import SyncClient

pytestmark = pytest.mark.usefixtures("each_store")

SEND = 'Status="ALPINEBITS_SEND_RATEPLANS"'


async def codes(hub: Hub) -> list[str]:
    return [row["code"] for row in await hub.execute("SELECT code FROM rate_plan ORDER BY code")]


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_pushed_plan_is_told_in_every_version(tmp_path: Path, version: str) -> None:
    async with open_hub(tmp_path) as hub:
        assert (
            "<Success/></OTA" in (await push_plans(hub, plan("A", rate(80)), version=version)).text
        )
        for other in PROTOCOLS:
            text = (await pull_plans(hub, 'RatePlanCode="A"', version=other)).text
            assert '<RatePlans xmlns="' in text and 'HotelName="Hotel H1"' in text
            assert 'AmountAfterTax="80"' in text and "RatePlanNotifType" not in text


async def test_plans_are_told_as_they_are_asked_for(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        unit = 'RateTimeUnit="Day" UnitMultiplier="1"'
        static = f'<Rate {unit}><MealsIncluded MealPlanCodes="12"/></Rate>'
        february = rate(90, 'Start="2027-02-01" End="2027-02-10"')
        master = 'CurrencyCode="EUR" RatePlanID="M"'
        await push_plans(
            hub, plan("A", static, rate(80), february), plan("B", rate(70), more=master)
        )
        whole = (await pull_plans(hub, 'RatePlanCode="A"')).text
        assert whole.count("<Rate ") == 3 and "Titel B" not in whole
        titles = (await pull_plans(hub)).text
        assert "Titel A" in titles and "Titel B" in titles and "<Rate " not in titles
        dated = (await pull_plans(hub, days='Start="2027-02-10"')).text
        assert 'Tax="90"' in dated and "MealPlanCodes" in dated and 'Tax="80"' not in dated
        one = (await pull_plans(hub, 'RatePlanID="M"', days='End="2027-01-01"')).text
        assert "Titel A" not in one and 'Tax="70"' in one
        for candidates in ((), ('RatePlanCode="A"',)):
            answer = await pull_plans(hub, *candidates, days="")
            assert error_of(answer) == ("13", "450") and "deltas" in answer.text
        assert error_of(await pull_plans(hub, 'RatePlanCode="X"')) == ("13", "450")


async def test_who_asks_too_early_is_told_to_send_plans(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for version in PROTOCOLS:
            answer = await pull_plans(hub, version=version)
            said = '<Error Type="13" Code="450">' if version < "2018" else f'Code="450" {SEND}>'
            assert said in answer.text


async def test_plan_of_another_currency_is_left_out_where_there_is_only_one(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await push_plans(hub, plan("A", rate(1)), plan("C", rate(2), more='CurrencyCode="CHF"'))
        assert "Titel C" in (await pull_plans(hub, version="2020-10")).text
        assert "Titel C" not in (await pull_plans(hub, version="2018-10")).text
        assert "Titel A" in (await pull_plans(hub, version="2018-10")).text


async def test_plans_are_replaced_removed_and_laid_over(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await push_plans(hub, plan("A", rate(80)), plan("B", rate(70)), plan("C", rate(60)))
        week = 'Start="2027-01-10" End="2027-01-16"'
        over = plan("A", rate(99, week), kind="Overlay", more="")
        assert "<Success/></OTA" in (await push_plans(hub, over, plan("B", rate(75)))).text
        told = (await pull_plans(hub, 'RatePlanCode="A"')).text
        assert told.count('Tax="80"') == 2 and told.count('Tax="99"') == 1
        assert 'End="2027-01-09"' in told and 'Start="2027-01-17"' in told
        assert 'Tax="70"' not in (await pull_plans(hub, 'RatePlanCode="B"')).text
        await push_plans(hub, plan("C", kind="Remove", more=""), plan("X", kind="Remove", more=""))
        assert await codes(hub) == ["A", "B"]
        await push_plans(hub, plan("D", rate(1), kind="Full"), complete=True)
        assert await codes(hub) == ["D"]
        await push_plans(hub, "<RatePlan/>", complete=True)
        assert await codes(hub) == []


async def test_overlay_of_an_unknown_plan_is_an_error_that_asks_for_it(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        told = plan("N", rate(1)), plan("A", rate(1), kind="Overlay", more="")
        for version in PROTOCOLS:
            text = (await push_plans(hub, *told, version=version)).text
            assert 'Code="450"' in text and (SEND in text) == (version > "2018")
        assert await codes(hub) == []
        rows = await hub.execute("SELECT outcome FROM inbound_message")
        assert [row["outcome"] for row in rows] == ["error"] * 5


REFUSED = {
    "no code": ('<RatePlan RatePlanNotifType="New" CurrencyCode="EUR"/>', "321"),
    "no type": ('<RatePlan RatePlanCode="A" CurrencyCode="EUR"/>', "321"),
    "no currency": (plan("A", more=""), "321"),
    "no such currency": (plan("A", more='CurrencyCode="eur"'), "320"),
    "twice": (plan("A") + plan("A"), "320"),
    "end before start": (plan("A", rate(1, 'Start="2027-02-01" End="2027-01-01"')), "404"),
    "start alone": (plan("A", rate(1, 'Start="2027-02-01"')), "404"),
    "no room": (plan("A", rate(1, room="")), "321"),
    "reset as a delta": ("<RatePlan/>", "450"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_push_against_the_rules_is_an_error_and_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await push_plans(hub, plan("Z"))
        told, code = REFUSED[name]
        assert error_of(await push_plans(hub, told)) == ("13", code)
        assert await codes(hub) == ["Z"]
        over = plan("Z", kind="Overlay", more="")
        assert error_of(await push_plans(hub, over, complete=True)) == ("13", "450")


async def test_days_that_are_too_far_are_left_out_with_a_warning(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        far = rate(99, 'Start="2190-01-01" End="2190-01-31"')
        for kind, more in (("New", 'CurrencyCode="EUR"'), ("Overlay", "")):
            answer = await push_plans(hub, plan("A", rate(80), far, kind=kind, more=more))
            assert '<Success/><Warnings><Warning Type="3">dates are too far' in answer.text
            told = (await pull_plans(hub, 'RatePlanCode="A"')).text
            assert 'Tax="80"' in told and "2190" not in told
        rows = await hub.execute("SELECT outcome FROM inbound_message")
        assert [row["outcome"] for row in rows] == ["warning"] * 2


async def test_more_plans_than_are_kept_are_an_error(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        many = [plan(f"P{number}") for number in range(500)]
        assert "<Success/></OTA" in (await push_plans(hub, *many)).text
        assert error_of(await push_plans(hub, plan("P500"))) == ("13", "450")
        assert len(await codes(hub)) == 500
        assert "<Success/></OTA" in (await push_plans(hub, plan("P499"))).text


async def test_plan_that_grows_beyond_a_push_is_an_error_that_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "apply_overlay", partial(overlay.apply_overlay, limit=500))
    async with open_hub(tmp_path) as hub:
        await push_plans(hub, plan("A", rate(80)), plan("B", rate(70)))
        told = plan("A", rate(9, room="EZ"), rate(9, room="FZ"), kind="Overlay", more="")
        answer = await push_plans(hub, plan("B", rate(71)), told)
        assert f'<Error Type="11" Code="450" {SEND}>with this Overlay' in answer.text
        assert "EZ" not in (await pull_plans(hub, 'RatePlanCode="A"')).text
        assert 'Tax="70"' in (await pull_plans(hub, 'RatePlanCode="B"')).text


async def test_plans_that_are_too_large_together_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(tmp_path) as hub:
        assert "<Success/></OTA" in (await push_plans(hub, plan("A", rate(80)))).text
        size = await hub.one("SELECT length(body) FROM rate_plan")
        monkeypatch.setattr(rate_plans, "MAX_BYTES", size * 3 // 2)
        answer = await push_plans(hub, plan("B", rate(70)))
        assert error_of(answer) == ("13", "450") and "all together" in answer.text
        assert await codes(hub) == ["A"]
        assert "<Success/></OTA" in (await push_plans(hub, plan("B", rate(70)), complete=True)).text
        assert await codes(hub) == ["B"]


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
async def test_of_two_complete_sets_at_once_one_is_left(tmp_path: Path) -> None:
    """Their plans are not the same, and neither removes what it cannot see yet."""
    async with open_hub(tmp_path) as one, open_worker(tmp_path) as two:
        with psycopg.connect(url_of(tmp_path)) as other:
            # So that neither is done at once.
            other.execute("LOCK TABLE inbound_message IN SHARE MODE")
            first = asyncio.create_task(push_plans(one, plan("A", kind="Full"), complete=True))
            second = asyncio.create_task(push_plans(two, plan("B", kind="Full"), complete=True))
            await until_blocked(one.ctx.store, 2)
        await asyncio.gather(first, second)
        assert len(await codes(one)) == 1


async def test_overlays_of_several_workers_at_once_are_all_kept(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as one, open_worker(tmp_path) as two:
        await push_plans(one, plan("A"))
        told = [(hub, day) for day in range(10, 13) for hub in (one, two)]
        overlays = [
            plan(
                "A",
                rate(at + 1, f'Start="2027-01-{day}" End="2027-01-{day}"', f"R{at}"),
                kind="Overlay",
                more="",
            )
            for at, (_, day) in enumerate(told)
        ]
        await asyncio.gather(
            *(push_plans(hub, over) for (hub, _), over in zip(told, overlays, strict=True))
        )
        text = (await pull_plans(one, 'RatePlanCode="A"')).text
        assert all(f'InvTypeCode="R{at}"' in text for at in range(len(told)))


async def test_hotel_of_another_and_what_was_taken_away_are_errors(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_hotel("H2")
        off = json.dumps({"off": ["rateplans", "baserates"]})
        await hub.execute("UPDATE hotel SET settings = ?", off)
        assert error_of(await push_plans(hub, plan("A"))) == ("11", "450")
        assert error_of(await pull_plans(hub)) == ("11", "450")
        one, other = await pull_plans(hub, hotel="H2"), await pull_plans(hub, hotel="H3")
        assert one.content == other.content and error_of(one) == ("13", "392")


async def test_large_answer_is_made_in_a_child_and_one_that_is_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = [rate(at + 1, room=f"R{at}") for at in range(1500)]
    (tmp_path / "pool").mkdir()
    with running(tmp_path / "pool", app="alpinehub.app:app", workers=1) as path:
        async with open_hub(tmp_path, path) as hub:
            await push_plans(hub, plan("A", *rates), plan("B", *rates))
            answer = await pull_plans(hub, 'RatePlanCode="A"', version="2017-10")
            assert len(answer.content) > POOL_BYTES and answer.text.count("<Rate ") == 1500
            with SyncClient(path) as pool:
                [worker] = pool.status()["workers"]
                assert worker["children"][0]["calls"] == 2  # the push, and this answer
            monkeypatch.setattr(rate_plans, "MAX_RESPONSE_BYTES", len(answer.content) * 3 // 2)
            assert (await pull_plans(hub, 'RatePlanCode="A"')).text.count("<Rate ") == 1500
            answer = await pull_plans(hub, days='Start="2027-01-01"')
            assert error_of(answer) == ("13", "450") and "name fewer days" in answer.text
