"""Whatever a record holds: in each version it is sent, and valid, or held with a named reason that
the review list and the trail show. Exactly one of the two.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import read_rq
from tests.integration.alpinebits.test_render_details import FULL
from tests.integration.hub.guests import store, submission
from tests.integration.hub.material import Hub, open_hub
from tests.integration.hub.software import READ, send

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.inbox import listing
from alpinehub.requests import listing as request_listing
from alpinehub.requests.listing import RequestFilter
from alpinehub.reservations import ReservationData, decode, encode

_GIVEN = re.compile(r'<UniqueID Type="\d+" ID="(\w+)"')


def storable(data: ReservationData) -> bool:
    """What has lone surrogates or no number for a total never gets into the store."""
    try:
        return decode(encode(data)) == data
    except (msgspec.MsgspecError, ArithmeticError, ValueError):
        return False


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
@given(records=st.lists(FULL.filter(storable), min_size=1, max_size=20))
def test_each_record_is_sent_or_held_in_each_version(records: list[ReservationData]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder), records))


async def check(folder: Path, records: Sequence[ReservationData]) -> None:
    async with open_hub(folder) as hub:
        ids = set()
        for number, data in enumerate(records):
            taken = await store(hub, await submission(hub, data, external_id=f"n-{number}"))
            # Of the end of what it never got no account is told.
            if data.status != "cancelled":
                ids.add(taken.reservation_id)
        for version in PROTOCOLS:
            answer = await send(hub, READ, read_rq("DEMO"), version)
            assert answer.status == 200
            assert material.problems(answer.body, version) == []
            given_ids = set(_GIVEN.findall(answer.body.decode()))
            held = await held_in(hub, version)
            assert given_ids | held.keys() == ids
            assert not given_ids & held.keys()
            assert set(held.values()) <= {"no_stay", "schema"}


async def held_in(hub: Hub, version: str) -> dict[str, str]:
    """Id and reason of each that is held, the same in the list, the review list and the trail."""
    store = hub.ctx.store
    page = await request_listing.list_requests(
        store, RequestFilter(state="undeliverable", limit=1000)
    )
    held = {row["id"]: row["accounts"][0]["undeliverable_code"] for row in page.items}
    listed = await listing.list_inbox(store, listing.InboxFilter(state="undeliverable", limit=1000))
    assert {row["id"] for row in listed} == held.keys()
    for request_id, code in held.items():
        trail = (await request_listing.find_request(store, request_id))["history"]
        told = [one["detail"] for one in trail if one["event"] == "undeliverable"]
        assert told[-1]["code"] == code, (version, told)
    return held
