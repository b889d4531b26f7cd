"""What becomes of a submission, told to whoever stores it in a unit of his own."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.integration.hub.guests import store, submission
from tests.integration.hub.material import Hub, forget_directory, open_hub
from tests.raw import raw

from alpinehub import history
from alpinehub.directory import directory_of
from alpinehub.intake import NormalisedSubmission, UnknownReservation
from alpinehub.models import Settings
from alpinehub.reservations import ReservationData
from cordata import KeyReused, Tx, request_id

pytestmark = pytest.mark.usefixtures("each_store")
DATA = ReservationData(
    status="request",
    arrival=date(2027, 2, 1),
    departure=date(2027, 2, 8),
    adults=2,
    email="eva@example.com",
)


async def stored(hub: Hub, made: NormalisedSubmission) -> tuple[str, str]:
    result = await store(hub, made)
    return result.reservation_id, result.outcome


async def test_submission_is_new_then_a_duplicate_then_changed(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        made = await submission(hub, DATA)
        id_, outcome = await stored(hub, made)
        assert outcome == "new"
        assert await stored(hub, made) == (id_, "duplicate")
        three = replace(made, data=ReservationData(status="cancelled"))
        assert await stored(hub, three) == (id_, "changed")
        rows = await hub.rows("SELECT outcome, received_at, handled_at FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "changed"]
        assert all(row["handled_at"] == row["received_at"] for row in rows)


async def test_submission_with_a_key_is_a_duplicate_when_the_key_comes_again(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        made = await submission(hub, DATA, external_id=None, idempotency_key="k-1", body_hash="1")
        id_, outcome = await stored(hub, made)
        assert outcome == "new"
        assert await stored(hub, made) == (id_, "duplicate")
        with pytest.raises(KeyReused):
            await stored(hub, replace(made, body_hash="2"))


async def test_submission_is_unknown_when_it_cancels_nothing_and_says_too_little(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        cancelled = ReservationData(status="cancelled")
        with pytest.raises(UnknownReservation):
            await stored(hub, await submission(hub, cancelled, may_create=False))
        assert await hub.one("SELECT count(*) FROM inbox") == 0


async def test_trail_takes_rows_with_and_without_a_detail(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        id_, _ = await stored(hub, await submission(hub, DATA))
        row = history.HistoryEntry(reservation_id=id_, version=1, event="undeliverable")
        other = replace(row, event="sent", account_id=1, detail={"by": "ö"}, request_id="r-7")

        async def unit(tx: Tx) -> int:
            await history.add(tx, row, other)
            return tx.now_us

        token = request_id.set("r-1")
        try:
            now_us = await hub.ctx.store.run(unit)
        finally:
            request_id.reset(token)
        rows = await hub.rows(
            "SELECT event, account_id, detail, at, request_id FROM reservation_history"
            " WHERE event <> 'received' ORDER BY id"
        )
        assert [tuple(one.values()) for one in rows] == [
            ("undeliverable", None, None, now_us, "r-1"),
            ("sent", 1, '{"by":"ö"}', now_us, "r-7"),
        ]


async def test_settings_of_a_hotel_are_read_and_skipped_when_they_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:

        async def settings(text: str | None) -> Settings:
            async def unit(tx: Tx) -> None:
                await raw(tx, "UPDATE hotel SET settings = ?", [text])
                await tx.execute("bump_directory")

            await hub.ctx.store.run(unit)
            forget_directory(hub.ctx)
            snapshot = await directory_of(hub.ctx).snapshot()
            return snapshot.sources_by_hotel["DEMO"][0].hotel.settings

        assert await settings(None) == Settings()
        newer = json.dumps({"off": ["deltas", "of a newer program"], "new": {"x": 1}})
        assert (await settings(newer)).off == {"deltas", "of a newer program"}
        assert not caplog.records
        for broken in ("{", "[]", '{"off": 1}'):
            assert await settings(broken) == Settings()
            assert "the settings of hotel DEMO are not used" in caplog.text
            caplog.clear()
