"""Rates under overlays, against a dictionary of nights."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import read_here
from alpinehub.alpinebits.rules.overlay import apply_overlay, select_days
from alpinehub.alpinebits.rules.rate_plans import RATES, Plan

FIRST = date(2028, 2, 20)
#: (room, first night from FIRST, how many, amount); the room "": what counts for all of them.
Rate = tuple[str, int, int, int]
Nights = dict[tuple[str, int], int]

RATE = st.tuples(
    st.sampled_from(["", "DZ", "EZ"]), st.integers(0, 25), st.integers(1, 9), st.integers(1, 5)
)


def apart(rates: list[Rate]) -> list[Rate]:
    """Without those that tell of the same as one before: a push may not."""
    left: list[Rate] = []
    told: set[tuple[str, int]] = set()
    for room, first, nights, amount in sorted(rates, key=lambda one: one[0] != ""):
        here = {(room, night) for night in range(first, first + nights)} if room else {("", 0)}
        if not told & here:
            told |= here
            left.append((room, first, nights, amount))
    return left


MESSAGES = st.lists(RATE, max_size=6).map(apart)


def written(one: Rate) -> str:
    room, first, nights, amount = one
    if not room:
        unit = 'RateTimeUnit="Day" UnitMultiplier="1"' if amount % 2 else ""
        meals = f'MealPlanIndicator="1" MealPlanCodes="{12 if amount > 2 else 1}"'
        return (
            f'<Rate {unit}><BaseByGuestAmts><BaseByGuestAmt Type="7"/></BaseByGuestAmts>'
            f"<MealsIncluded {meals}/></Rate>"
        )
    start = FIRST + timedelta(first)
    return (
        f'<Rate InvTypeCode="{room}" Start="{start}" End="{start + timedelta(nights - 1)}">'
        f'<BaseByGuestAmts><BaseByGuestAmt NumberOfGuests="2" AmountAfterTax="{amount}"/>'
        "</BaseByGuestAmts></Rate>"
    )


def pushed(inside: str, kind: str = "New") -> Plan:
    """As hotel software pushes it: nothing is wrong with it."""
    document = (
        f'<OTA_HotelRatePlanNotifRQ xmlns="{NAMESPACE}" Version="1"><RatePlans HotelCode="H">'
        f'<RatePlan RatePlanNotifType="{kind}" RatePlanCode="A" CurrencyCode="EUR">{inside}'
        "</RatePlan></RatePlans></OTA_HotelRatePlanNotifRQ>"
    )
    told = read_here(document.encode(), PROTOCOLS["2024-10"], RATES)
    assert told.findings == (), told.findings
    return told.plans[0]


def plan(rates: Sequence[Rate], kind: str = "New") -> bytes:
    inside = "".join(map(written, rates))
    return pushed(f"<Rates>{inside}</Rates>" if inside else "", kind).body


def tell(nights: Nights, rates: Sequence[Rate]) -> Nights:
    """What is known of each night after some rates."""
    for room, first, count, amount in rates:
        if room:
            nights |= {(room, night): amount for night in range(first, first + count)}
    return nights


def known(body: bytes) -> Nights:
    """The same, of a plan; no night is told of twice."""
    found: Nights = {}
    for one in etree.fromstring(body).iter(f"{{{NAMESPACE}}}Rate"):
        if one.get("Start") is None:
            continue
        start, end = (date.fromisoformat(one.get(name, "")) for name in ("Start", "End"))
        for night in range((start - FIRST).days, (end - FIRST).days + 1):
            place = (one.get("InvTypeCode", ""), night)
            assert place not in found
            found[place] = int(one[0][0].get("AmountAfterTax", ""))
    return found


@settings(deadline=None)
@given(first=MESSAGES, overlays=st.lists(MESSAGES, max_size=4))
def test_overlays_say_what_a_dictionary_of_nights_says(
    first: list[Rate], overlays: list[list[Rate]]
) -> None:
    body, nights = plan(first), tell({}, first)
    for overlay in overlays:
        body, nights = apply_overlay(body, plan(overlay, "Overlay")), tell(nights, overlay)
        assert known(body) == nights
    # What has become of it might have been pushed as it is.
    inside = "".join(
        etree.tostring(one, encoding="unicode", with_tail=False) for one in etree.fromstring(body)
    )
    assert known(pushed(inside).body) == nights


@settings(deadline=None)
@given(rates=MESSAGES, day=st.integers(-1, 40))
def test_part_of_a_plan_is_what_touches_the_days(rates: list[Rate], day: int) -> None:
    at = FIRST + timedelta(day)
    part = known(select_days(plan(rates), at, at))
    assert {place for place in part if place[1] == day} == {
        place for place in tell({}, rates) if place[1] == day
    }
    assert part.items() <= tell({}, rates).items()
