"""The demo hotel: DEMO, its account demo with the password demo, and sources with known secrets."""

from __future__ import annotations

from alpinehub.accounts import add_account, list_accounts
from alpinehub.hotels import NewHotel, add_hotel, list_hotels
from alpinehub.sources import add_source, list_sources
from cordata import Context

HOTEL, USER, PASSWORD, SOURCE, SECRET = "DEMO", "demo", "demo", "demo", "demo"
#: Secrets of the other sources, which are named like their kind: a secret in a path must be long.
FORM_SECRETS = {kind: f"demo-{kind}-0123456789012" for kind in ("wix", "google", "form")}


async def set_up(ctx: Context) -> bool:
    """Make the missing parts. Returns whether any was missing. Existing ones are not changed."""
    made = False
    store = ctx.store
    if HOTEL not in [row["code"] for row in await list_hotels(store)]:
        await add_hotel(store, NewHotel(code=HOTEL, name="Hotel Demo"))
        made = True
    if USER not in [row["name"] for row in await list_accounts(store)]:
        await add_account(store, USER, PASSWORD, [HOTEL])
        made = True
    there = {row["name"] for row in await list_sources(store) if row["hotel"] == HOTEL}
    if SOURCE not in there:
        await add_source(ctx, HOTEL, "generic", SOURCE, SECRET)
        made = True
    for kind, secret in FORM_SECRETS.items():
        if kind not in there:
            await add_source(ctx, HOTEL, kind, kind, secret)
            made = True
    return made
