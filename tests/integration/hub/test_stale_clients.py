"""Hotel software that does not come is an alert, once, until it is back."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.material import BOOKING, Hub, open_hub

from alpinehub import monitoring
from alpinehub.accounts import set_account_disabled
from alpinehub.hotels import set_hotel_disabled
from alpinehub.monitoring import watch
from cordata.store import Store

Disable = Callable[[Store, str, bool], Awaitable[None]]
#: (cause, text) of each alert of one pass.
Passed = Callable[[Hub], Awaitable[list[tuple[str, str]]]]
pytestmark = pytest.mark.usefixtures("each_store")


@pytest.fixture
def passed(caplog: pytest.LogCaptureFixture) -> Passed:
    """Runs one pass."""

    async def run(hub: Hub) -> list[tuple[str, str]]:
        caplog.clear()
        await watch(hub.ctx)
        return alerts(caplog)

    return run


def alerts(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [record for record in caplog.records if hasattr(record, "ALERT")]
    return [(vars(record)["ALERT"], record.getMessage()) for record in found]


async def contact(hub: Hub, **times: int | None) -> None:
    """Hotel software of the demo user was there at these times."""
    values = {"polled_at": None, "acked_at": None, **times}
    await hub.execute(
        "INSERT INTO contact (account_id, hotel_id, polled_at, acked_at)"
        " SELECT u.id, h.id, CAST(? AS BIGINT), CAST(? AS BIGINT)"
        " FROM account u, hotel h WHERE true"
        " ON CONFLICT (account_id, hotel_id) DO UPDATE SET polled_at = excluded.polled_at",
        *values.values(),
    )


def later(hub: Hub, hours: int) -> None:
    hub.harness.advance(hours=hours)


async def test_software_that_never_came_is_stale_once(tmp_path: Path, passed: Passed) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)
        assert await passed(hub) == []
        later(hub, 25)
        text = (
            "hotel DEMO (Hotel Demo): account demo has not polled for 25 h; 1 guest requests wait"
        )
        assert await passed(hub) == [("stale-client:DEMO:demo", text)]
        later(hub, 25)
        assert await passed(hub) == []


async def test_software_that_is_back_can_be_stale_again(tmp_path: Path, passed: Passed) -> None:
    async with open_hub(tmp_path) as hub:
        await contact(hub, polled_at=hub.ctx.now_us())
        later(hub, 25)
        assert len(await passed(hub)) == 1
        await contact(hub, polled_at=hub.ctx.now_us())
        assert await passed(hub) == []
        assert await hub.one("SELECT stale_at FROM contact") is None
        later(hub, 25)
        assert len(await passed(hub)) == 1


async def test_software_that_fetches_and_does_not_acknowledge_is_stale(
    tmp_path: Path, passed: Passed
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)
        await hub.execute("UPDATE delivery SET sent_at = ?", hub.ctx.now_us())
        later(hub, 25)
        await contact(hub, polled_at=hub.ctx.now_us())
        [(_, text)] = await passed(hub)
        assert "has not acknowledged what it got for 25 h" in text


async def test_software_that_is_pushed_everything_is_stale_by_what_waits(
    tmp_path: Path, passed: Passed
) -> None:
    async with open_hub(tmp_path) as hub:
        target = "INSERT INTO push_target (account_id, url, login, secret, protocol, gzip)"
        await hub.execute(f"{target} VALUES (1, '', '', ?, '2024-10', 0)", b"")
        await contact(hub, polled_at=hub.ctx.now_us())
        later(hub, 25)
        assert await passed(hub) == []
        await hub.post(BOOKING)
        later(hub, 25)
        assert len(await passed(hub)) == 1


async def test_new_version_of_an_old_request_did_not_wait_since_the_first(
    tmp_path: Path, passed: Passed
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)
        await hub.execute("UPDATE delivery SET waiting = 0, acked_at = 1")
        later(hub, 500)
        await hub.post({**BOOKING, "adults": 3})
        assert await hub.one("SELECT count(*) FROM delivery WHERE waiting = 1") == 1
        assert await passed(hub) == []
        later(hub, 12)
        await hub.post({**BOOKING, "external_id": "another"})
        later(hub, 13)
        [(_, text)] = await passed(hub)
        assert "has not polled for 25 h; 2 guest requests wait" in text


async def test_hotel_decides_how_long_and_who_is_told(tmp_path: Path, passed: Passed) -> None:
    settings = {"stale_after_h": 2, "alert_email": "desk@x.example, no address, hütte@x.example"}
    async with open_hub(tmp_path) as hub:
        await hub.execute("UPDATE hotel SET settings = ?", json.dumps(settings))
        await contact(hub, polled_at=hub.ctx.now_us())
        later(hub, 3)
        assert len(await passed(hub)) == 1
        [mail] = await hub.rows('SELECT "to", subject, text FROM mail')
        assert json.loads(mail["to"]) == ["desk@x.example"]
        assert mail["subject"] == ("Hotel Demo: Die Hotelsoftware nimmt keine Gästeanfragen an")
        assert "(demo) hat sich seit 3 Stunden" in mail["text"]


async def test_nobody_is_stale_when_the_hotel_or_the_account_is_disabled(
    tmp_path: Path, passed: Passed
) -> None:
    async with open_hub(tmp_path) as hub:
        await contact(hub, polled_at=hub.ctx.now_us())
        later(hub, 25)
        await hub.execute("UPDATE account SET disabled_at = 1")
        assert await passed(hub) == []
        await hub.execute("UPDATE account SET disabled_at = NULL")
        await hub.execute("UPDATE hotel SET disabled_at = 1")
        assert await passed(hub) == []


@pytest.mark.parametrize("came", ["polled", "never", "fetched"])
@pytest.mark.parametrize(
    ("disable", "name"), [(set_hotel_disabled, "DEMO"), (set_account_disabled, "demo")]
)
async def test_who_is_enabled_again_is_given_time(
    tmp_path: Path, passed: Passed, came: str, disable: Disable, name: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)
        if came != "never":
            await contact(hub, polled_at=hub.ctx.now_us())
        if came == "fetched":
            await hub.execute("UPDATE delivery SET sent_at = ?", hub.ctx.now_us())
        await disable(hub.ctx.store, name, True)
        later(hub, 500)
        await disable(hub.ctx.store, name, False)
        assert await passed(hub) == []
        later(hub, 25)
        [(_, text)] = await passed(hub)
        assert "for 25 h" in text


async def test_stale_software_is_an_alert_though_it_cannot_be_noted(
    tmp_path: Path,
    passed: Passed,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the process dies between the two: it is told once more then, and not never."""

    class Died(Exception):
        """Not that the store is away: it would be taken at its word, and not asked for a second."""

    async def die(*args: Any, **more: Any) -> None:
        raise Died

    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)
        later(hub, 25)
        with monkeypatch.context() as patched:
            patched.setattr(monitoring, "_note", die)
            with pytest.raises(Died):
                await watch(hub.ctx)
        assert [cause for cause, _ in alerts(caplog)] == ["stale-client:DEMO:demo"]
        assert len(await passed(hub)) == 1 and await passed(hub) == []
