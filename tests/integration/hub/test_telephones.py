"""Telephone numbers as guests write them: the hotel gets one that can be dialled, and the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.hub.guests import settle
from tests.integration.hub.lenient import FORM, data, open_lenient, post_form
from tests.integration.hub.material import BOOKING, Hub, open_hub

from alpinehub.customers.search import find

on_each_store = pytest.mark.usefixtures("each_store")

#: What is written, the number, and whether the text is kept beside it.
WRITTEN = [
    ("0171 1234567 / 089 123456", "01711234567", True),
    ("+49 171 1234567, +49 89 123456", "+491711234567", True),
    ("0471 123456 oder 333 1234567", "0471123456", True),
    ("0471 123456; 333 1234567", "0471123456", True),
    ("+39 333 1234567\u202c", "+393331234567", False),
    ("\u202a+39 333 1234567\u202c", "+393331234567", False),
    ("(+39) 333 1234567", "+393331234567", False),
    ("(0039) 333 1234567", "+393331234567", False),
    ("+1 650 555 1212 x12", "+16505551212", True),
    ("+1 650 555 1212 ext. 12", "+16505551212", True),
    ("0471 123456 int. 12", "0471123456", True),
    ("٠٤٧١ ١٢٣٤٥٦", "0471123456", False),
    ("０４７１ １２３４５６", "0471123456", False),
    ("＋３９ ３３３ １２３４５６７", "+393331234567", False),
    ("0471 – 123456", "0471123456", False),
    ("0471\u2011123\u2011456", "0471123456", False),
    ("tel:+39-333-1234567", "+393331234567", False),
    ("Tel. 0471 123456", "0471123456", False),
    ("0471 123456 (Büro)", "0471123456", True),
    ("+39 333 1234567 (WhatsApp)", "+393331234567", True),
    ("0471 123456 abends", "0471123456", True),
    ("T: 0471 123456", "0471123456", False),
    ("0471 12345 / Handy 333 12345", "047112345", True),
    ("0471 \u2212 123456", "0471123456", False),
    # One number, whatever it is written with.
    ("0471 / 123456", "0471123456", False),
    ("0471 12.34.56", "0471123456", False),
    ("+43/664/1234567", "+436641234567", False),
    ("+43/0664/1234567", "+4306641234567", False),
    ("089/123456-78", "08912345678", False),
    ("0039 (0) 471 / 12 34 56", "+390471123456", False),
    ("+49 (0)89 / 123 45", "+498912345", False),
    ("(0471) 123456", "0471123456", False),
    ("+39\u00a0333\u00a01234567", "+393331234567", False),
    # 46 may be another last number, or the end of this one.
    ("0471 12345 / 46", "047112345", True),
]
UNREADABLE = ["ruft mich nicht an", "123", "+", "1" * 21, "12+34567", "ab 0471 123456",
    "0471/123456 0471/123457", "12345 abends", "²²²²²²"]  # fmt: skip


async def test_number_is_read_as_it_is_written(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        for at, (written, number, kept) in enumerate(WRITTEN):
            booking = {**BOOKING, "external_id": f"n-{at}", "phone": written, "email": None}
            answer = await hub.post(booking)
            assert answer.status == 200, (written, answer.body)
            assert await told(hub) == (number, f"phone: {written}" if kept else ""), written
            form = {**FORM, "tel": written}
            form.pop("email")
            assert (await post_form(hub, form)).status == 200
            await hub.handle_events()
            assert await told(hub) == (number, f"tel: {written}" if kept else ""), written


async def told(hub: Hub) -> tuple[str, str]:
    """The number and the further text of the newest record."""
    record = await data(hub)
    return record["phone"], record.get("extra", "")


async def test_text_that_is_no_number_is_kept_where_an_address_is_known(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        for at, written in enumerate(UNREADABLE):
            booking = {**BOOKING, "external_id": f"n-{at}", "phone": written}
            assert (await hub.post(booking)).status == 200
            record = await data(hub)
            assert "phone" not in record and record["extra"] == f"phone: {written}"
            assert record["email"] == BOOKING["email"]
            refused = await hub.post({**booking, "external_id": f"r-{at}", "email": None})
            assert (refused.status, refused.fields) == (422, ["phone"])
            wrong = await hub.post({**booking, "external_id": f"r-{at}", "email": "x"})
            assert (wrong.status, sorted(wrong.fields)) == (422, ["email", "phone"])
            form = {**FORM, "phone": written}
            form.pop("email")
            await post_form(hub, form)
            await hub.handle_events()
        reviews = await hub.rows("SELECT error FROM inbox WHERE state = 'review'")
        assert [row["error"] for row in reviews] == ["unreadable:phone"] * len(UNREADABLE)


async def test_cancellation_is_not_refused_for_its_number(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert (await hub.post(BOOKING)).status == 200
        gone = {"hotel_code": "DEMO", "status": "cancelled", "external_id": "n-1", "phone": "123"}
        assert (await hub.post(gone)).status == 200


@on_each_store
async def test_national_number_is_of_the_guests_country_first(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        told = [
            ("DE", "0171 1234567", "+491711234567"),
            ("CH", "079 123 45 67", "+41791234567"),
            ("IT", "0471 123456", "+390471123456"),
            # No number of the guest's country: one of the hotel's.
            ("CH", "0471 123456", "+390471123456"),
            ("", "333 1234567", "+393331234567"),
            ("AQ", "333 1234568", "+393331234568"),
            ("DE", "+43 512 123456", "+43512123456"),
        ]
        for number, (country, phone, _) in enumerate(told):
            form = {**FORM, "email": f"g{number}@example.com", "phone": phone, "land": country}
            assert (await post_form(hub, form)).status == 200
        await hub.handle_events()
        await settle(hub)
        rows = await hub.rows("SELECT id FROM customer ORDER BY email")
        found = [await find(hub.ctx.store, id=row["id"]) for row in rows]
        assert [one["phone_e164"] for [one] in found] == [e164 for _, _, e164 in told]


@on_each_store
async def test_guest_of_another_country_is_one_however_the_number_is_written(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub:
        by_number = {key: value for key, value in FORM.items() if key != "email"}
        german = {**by_number, "phone": "0171 1234567", "land": "Deutschland"}
        assert (await post_form(hub, german)).status == 200
        again = {**FORM, "phone": "+49 171 1234567", "arrival": "2027-02-02"}
        assert (await post_form(hub, again)).status == 200
        await hub.handle_events()
        await settle(hub)
        [eva] = await find(hub.ctx.store, phone="+49 171 1234567")
        assert eva["email"] == "eva@example.com" and eva["phone_e164"] == "+491711234567"
        assert len(await hub.rows("SELECT id FROM customer")) == 1
