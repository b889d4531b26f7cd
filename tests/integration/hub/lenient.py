"""Sources that nobody can teach, and what they send: samples of their own."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.integration.hub.material import Answer, Hub, open_hub

from alpinehub.sources import add_source

#: Before the stays of the samples: one in the past would be reviewed.
NOW = datetime(2027, 1, 2, 12, tzinfo=UTC)
PATH_SECRET = "planted-secret-0123456789"
GOOGLE_KEY = "planted-google-key"

WIX: dict[str, Any] = {
    "data": {
        "formName": "Anfrage",
        "formId": "f-1",
        "submissionId": "5b2f0a0e-6c3c-4b7a-9d42-0f3c2f1f7a11",
        "submissionTime": "2027-01-02T13:26:07.938Z",
        "field:first_name_abae": "Eva",
        "field:last_name_12f0": "Muster",
        "field:email_5139": "eva@example.com",
        "field:phone_4c77": "+39 333 1234567",
        "field:date_picker_a7c8": "2027-02-01",
        "field:date_picker_7e65": "2027-02-08",
        "field:number_7cf5": "2",
        "field:long_answer_3524": "Ist das Zimmer frei?",
        "submissions": [
            {"label": "Anreisedatum", "value": "01.02.2027"},
            {"label": "Abreisedatum", "value": "08.02.2027"},
        ],
        "contact": {"locale": "de", "address": {"city": "Bozen", "country": "IT"}},
    }
}
GOOGLE: dict[str, Any] = {
    "lead_id": "lead-1",
    "user_column_data": [
        {"column_id": "FULL_NAME", "column_name": "Full Name", "string_value": "Eva Muster"},
        {"column_id": "EMAIL", "column_name": "User Email", "string_value": "eva@example.com"},
        {"column_id": "when", "column_name": "Wann?", "string_value": "im Februar"},
    ],
    "api_version": "1.0",
    "form_id": 123,
    "campaign_id": 456,
    "google_key": GOOGLE_KEY,
    "gcl_id": "click-1",
}
FORM: dict[str, str] = {
    "name": "Eva Muster",
    "email": "eva@example.com",
    "arrival": "2027-02-01",
    "departure": "08.02.2027",
    "adults": "2",
    "message": "Ist das Zimmer frei?",
    "website_url": "",
}


def wix(**change: Any) -> dict[str, Any]:
    """The sample with other fields; None leaves one out."""
    payload = copy.deepcopy(WIX)
    payload["data"] |= {name.replace("__", ":"): value for name, value in change.items()}
    payload["data"] = {k: v for k, v in payload["data"].items() if v is not None}
    return payload


@asynccontextmanager
async def open_lenient(
    directory: Path, *, now: datetime | None = NOW, **settings: Any
) -> AsyncIterator[Hub]:
    """A hub whose hotel DEMO has a source of each kind, with settings of [alpinehub].

    `now`: None beside commands, whose time is that of the machine.
    """
    async with open_hub(directory, now=now, **settings) as hub:
        await add_source(hub.ctx, "DEMO", "wix", "wix", PATH_SECRET)
        await add_source(hub.ctx, "DEMO", "google", "ads", GOOGLE_KEY)
        await add_source(hub.ctx, "DEMO", "form", "form", PATH_SECRET.replace("secret", "form"))
        yield hub


async def post_wix(
    hub: Hub, payload: Any = WIX, *, body: bytes | None = None, hotel: str = "DEMO"
) -> Answer:
    path = f"/api/webhook/wix/{hotel}/{PATH_SECRET}"
    return await hub.post(payload, body=body, path=path, headers={"x-webhook-secret": None})


async def post_google(hub: Hub, payload: Any = GOOGLE, *, body: bytes | None = None) -> Answer:
    path = "/api/webhook/google"
    return await hub.post(payload, body=body, path=path, headers={"x-webhook-secret": None})


async def post_form(
    hub: Hub,
    fields: Any = FORM,
    *,
    body: bytes | None = None,
    headers: dict[str, str | None] | None = None,
    client: str | None = None,
) -> Answer:
    path = f"/api/webhook/form/DEMO/{PATH_SECRET.replace('secret', 'form')}"
    raw = urlencode(fields).encode() if body is None else body
    sent: dict[str, str | None] = {
        "x-webhook-secret": None,
        "content-type": "application/x-www-form-urlencoded",
        **(headers or {}),
    }
    return await hub.post(body=raw, path=path, headers=sent, client=client)


async def data(hub: Hub) -> dict[str, Any]:
    """The newest record there is."""
    [row] = await hub.rows("SELECT data FROM reservation_version ORDER BY id DESC LIMIT 1")
    found: dict[str, Any] = json.loads(row["data"])
    return found
