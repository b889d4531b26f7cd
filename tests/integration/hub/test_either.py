"""Whatever anybody sends: each version of AlpineBits gets it, or it is held for a named reason that
a person finds on the list and in the history. Never both, and never neither.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import read_rq, reservations
from tests.integration.alpinebits.payloads import FIELDS, PAYLOADS, texts, wide
from tests.integration.alpinebits.test_accepted import MAPPING
from tests.integration.hub.lenient import GOOGLE, GOOGLE_KEY, PATH_SECRET, open_lenient
from tests.integration.hub.material import Hub
from tests.integration.hub.software import READ, send
from tests.raw import raw

from alpinehub.accounts import add_account
from alpinehub.alpinebits.guest import UndeliverableCode
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.inbox.listing import InboxFilter, list_inbox

#: (kind of source, what it sends).
SUBMISSIONS = st.lists(
    st.tuples(st.just("generic"), PAYLOADS)
    | st.tuples(st.just("wix"), FIELDS)
    | st.tuples(st.just("form"), FIELDS)
    | st.tuples(st.just("google"), st.fixed_dictionaries({"FULL_NAME": texts(90), "q": texts(90)})),
    min_size=1,
    max_size=8,
)


async def submit(hub: Hub, number: int, kind: str, said: dict[str, Any]) -> None:
    """By the webhook of its kind."""
    if kind == "generic":
        # Few ids, so that some are changed and some taken back.
        await hub.post({**said, "hotel_code": "DEMO", "external_id": f"n-{number % 2}"})
    elif kind == "wix":
        data = {f"field:{name}": value for name, value in said.items()}
        payload = {"data": {"submissionId": f"n-{number}", **data}}
        path = f"/api/webhook/wix/DEMO/{PATH_SECRET}"
        await hub.post(payload, path=path, headers={"x-webhook-secret": None})
    elif kind == "form":
        form = {"content-type": "application/x-www-form-urlencoded", "x-webhook-secret": None}
        path = f"/api/webhook/form/DEMO/{PATH_SECRET.replace('secret', 'form')}"
        await hub.post(body=urlencode(said, errors="replace").encode(), path=path, headers=form)
    else:
        columns = [{"column_id": name, "string_value": value} for name, value in said.items()]
        lead = {**GOOGLE, "lead_id": f"n-{number}", "user_column_data": columns}
        key = {"google_key": GOOGLE_KEY}
        await hub.post(lead | key, path="/api/webhook/google", headers={"x-webhook-secret": None})


async def poll(hub: Hub, version: str) -> set[str]:
    """The ids that hotel software of a version gets; what it gets is valid."""
    answer = await send(hub, READ, read_rq("DEMO"), version, f"pms-{version}", "secret")
    assert answer.status == 200, answer.body
    assert material.problems(answer.body, version) == []
    ids = [id_ for _, id_, _ in reservations(answer.body)]
    assert len(ids) == len(set(ids))
    return set(ids)


async def check(hub: Hub, version: str, stored: set[str]) -> set[str]:
    """What is held for hotel software of this version."""
    got = await poll(hub, version)
    login = f"pms-{version}"
    listed = {
        (str(row["id"]), str(row["error"]).partition(" for ")[0])
        for row in await list_inbox(hub.ctx.store, InboxFilter(state="undeliverable", limit=500))
        if f" for {login}:" in str(row["error"])
    }
    history = await hub.rows(
        "SELECT e.reservation_id, e.detail FROM reservation_history e JOIN account u"
        f" ON u.id = e.account_id WHERE e.event = 'undeliverable' AND u.name = '{login}'"
    )
    noted = {(row["reservation_id"], json.loads(row["detail"])["code"]) for row in history}
    held = {id_ for id_, _ in listed}
    assert listed <= noted and {code for _, code in listed} <= set(UndeliverableCode)
    assert got | held == stored, "never neither"
    assert not got & held, "never both"
    return held


async def run(submissions: list[tuple[str, dict[str, Any]]], polls: int = 1) -> tuple[int, int]:
    """How many requests there are, and how many are held for some version."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_lenient(Path(folder)) as hub:
            mapping = msgspec.json.encode(MAPPING).decode()
            lenient = "UPDATE source SET mapping = ? WHERE kind IN ('wix', 'form')"
            await hub.ctx.store.run(lambda tx: raw(tx, lenient, [mapping]))
            for version in PROTOCOLS:
                await add_account(hub.ctx.store, f"pms-{version}", "secret", ["DEMO"])
            for number, (kind, said) in enumerate(submissions):
                await submit(hub, number, kind, said)
            await hub.handle_events()
            # Of the end of what it never got no account is told.
            wanted = "SELECT id FROM reservation WHERE status <> 'cancelled'"
            stored = {row["id"] for row in await hub.rows(wanted)}
            held = set()
            for version in [*PROTOCOLS] * polls:
                held |= await check(hub, version, stored)
            return len(stored), len(held)


@wide(8)
@given(submissions=SUBMISSIONS)
def test_what_is_accepted_is_sent_or_undeliverable_by_name_in_each_version(
    submissions: list[tuple[str, dict[str, Any]]],
) -> None:
    asyncio.run(run(submissions))


def test_some_are_sent_and_some_are_undeliverable() -> None:
    """Else the test above tests nothing."""
    stay = {"arrival": "2027-02-01", "departure": "2027-02-08", "email": "eva@example.com"}
    lead = {"email": "eva@example.com", "first_name": "Eva"}
    generic = {**stay, "status": "request", "adults": 2}
    sent: list[tuple[str, dict[str, Any]]] = [
        ("generic", generic),
        ("wix", stay),
        ("form", stay),
        ("wix", lead),
        ("google", {"FULL_NAME": "Eva Muster"}),
    ]
    # Undeliverable by name for the second time as for the first.
    assert asyncio.run(run(sent, polls=2)) == (5, 2)
