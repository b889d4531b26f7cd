"""A hotel to try things with: DEMO, its user demo with password demo, its webhook secret demo."""

from __future__ import annotations

from alpinehub.hotels import NewHotel, add_hotel, list_hotels
from alpinehub.sources import add_source, list_sources
from alpinehub.users import add_user, list_users
from cordata import Context

HOTEL, USER, PASSWORD, SOURCE, SECRET = "DEMO", "demo", "demo", "demo", "demo"


async def set_up(ctx: Context) -> bool:
    """Make what of it is missing; whether anything was. What was changed by hand stays."""
    made = False
    store = ctx.store
    if HOTEL not in [row["code"] for row in await list_hotels(store)]:
        await add_hotel(store, NewHotel(code=HOTEL, name="Hotel Demo"))
        made = True
    if USER not in [row["name"] for row in await list_users(store)]:
        await add_user(store, USER, PASSWORD, [HOTEL])
        made = True
    if (HOTEL, SOURCE) not in [(row["hotel"], row["name"]) for row in await list_sources(store)]:
        await add_source(ctx, HOTEL, "generic", SOURCE, SECRET)
        made = True
    return made
