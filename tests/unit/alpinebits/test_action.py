"""What is announced is what is answered, and both are told by the operator's choice of features."""

from __future__ import annotations

import pytest

from alpinehub.alpinebits import action
from alpinehub.alpinebits.action import (
    ACKNOWLEDGE,
    ACTIONS,
    READ,
    Action,
    Support,
    announce,
)
from alpinehub.alpinebits.endpoint import HANDLERS
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Account, Hotel, Settings

FREEROOMS = Action(
    name=READ,
    capability="action_OTA_Some",
    since=2018,
    supports={
        "Some_always": Support(),
        "Some_deltas": Support(feature="deltas"),
        "Some_later": Support(since=2022, feature="deltas"),
    },
)


def hotel(number: int, *off: str) -> Hotel:
    return Hotel(
        id=number,
        code=f"H{number}",
        name="H",
        time_zone="Europe/Rome",
        language="de",
        region="IT",
        settings=Settings(off=frozenset(off)),
    )


def account(*hotels: Hotel) -> Account:
    return Account(id=1, name="u1", hotels=hotels)


def test_every_action_is_answered_and_announced_but_the_one_that_reading_implies() -> None:
    assert [one.name for one in ACTIONS] == list(HANDLERS)
    assert {one.name for one in ACTIONS if not one.capability} == {ACKNOWLEDGE}


def test_support_is_announced_when_the_version_has_it_and_all_hotels_offer_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action, "ACTIONS", (FREEROOMS,))

    def supports(name: str, *hotels: Hotel) -> set[str]:
        told = announce(account(*hotels), PROTOCOLS[name])
        return {support.removeprefix("Some_") for support in told["action_OTA_Some"]}

    assert announce(account(hotel(1)), PROTOCOLS["2017-10"]) == {}
    assert supports("2018-10", hotel(1)) == {"always", "deltas"}
    assert supports("2024-10", hotel(1)) == {"always", "deltas", "later"}
    assert supports("2024-10", hotel(1), hotel(2, "deltas")) == {"always"}
    assert supports("2024-10", hotel(1, "rooms"), hotel(2)) == {"always", "deltas", "later"}


def test_action_is_not_announced_when_a_hotel_does_not_offer_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Action(name=READ, capability="action_OTA_Some", feature="inventory")
    monkeypatch.setattr(action, "ACTIONS", (one,))
    assert list(announce(account(hotel(1)), PROTOCOLS["2020-10"])) == ["action_OTA_Some"]
    assert announce(account(hotel(1), hotel(2, "inventory")), PROTOCOLS["2020-10"]) == {}
