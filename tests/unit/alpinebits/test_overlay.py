"""A rate plan with what an overlay tells of some of its days."""

from __future__ import annotations

import re
from datetime import date, timedelta
from time import process_time

import pytest

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.rules.overlay import TooLarge, apply_overlay, select_days, title_only


def plan(inside: str, **attributes: str) -> bytes:
    told = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f'<RatePlan xmlns="{NAMESPACE}" RatePlanCode="A"{told}>{inside}</RatePlan>'.encode()


def rate(days: str, room: str = "DZ", amount: int = 1) -> str:
    start, end = (f"2027-01-{day}" for day in days.split("-"))
    amounts = f'<BaseByGuestAmts><BaseByGuestAmt AmountAfterTax="{amount}"/></BaseByGuestAmts>'
    return f'<Rate InvTypeCode="{room}" Start="{start}" End="{end}">{amounts}</Rate>'


def rates(*told: str) -> str:
    return f"<Rates>{''.join(told)}</Rates>"


def said(plan: bytes) -> list[tuple[str, str, str]]:
    """(room, days, amount) of each rate with days."""
    found = re.findall(
        r'<Rate End="2027-01-(..)" InvTypeCode="(.*?)" Start="2027-01-(..)">.*?Tax="(\d+)"',
        plan.decode(),
    )
    return [(room, f"{start}-{end}", amount) for end, room, start, amount in found]


def test_days_that_are_told_twice_or_touch_are_cut_out_once() -> None:
    known = plan(rates(rate("01-31")))
    told = rate("08-12", amount=4), rate("05-20", amount=5), rate("21-22", amount=6)
    assert said(apply_overlay(known, plan(rates(*told))))[:2] == [
        ("DZ", "01-04", "1"),
        ("DZ", "23-31", "1"),
    ]
    assert said(apply_overlay(known, plan(rates(rate("01-15"), rate("16-31", amount=2))))) == [
        ("DZ", "01-15", "1"),
        ("DZ", "16-31", "2"),
    ]


def test_overlay_may_last_until_the_last_day_of_the_calendar() -> None:
    ever = '<Rate InvTypeCode="DZ" Start="{}" End="9999-12-31"/>'
    known = plan(rates(rate("01-20"), ever.format("2027-01-21")))
    made = apply_overlay(known, plan(rates(ever.format("2027-01-11"))))
    assert said(made) == [("DZ", "01-10", "1")] and made.count(b"9999-12-31") == 1


def nights(first: int, step: int, many: int, more: str = "") -> str:
    days = [date(1000, 1, 1) + timedelta(first + at * step) for at in range(many)]
    return rates(*(f'<Rate InvTypeCode="DZ" Start="{d}" End="{d}">{more}</Rate>' for d in days))


def test_thousands_of_rates_of_one_room_are_laid_over_thousands_in_a_moment() -> None:
    began = process_time()
    made = apply_overlay(plan(nights(0, 2, 6000)), plan(nights(1, 2, 6000)))
    assert made.count(b"<Rate ") == 12000
    assert process_time() - began < 5, "each was compared with each"


def test_plan_that_is_cut_into_more_than_may_be_pushed_is_too_large() -> None:
    ever = '<Rate InvTypeCode="DZ" Start="1000-01-01" End="9999-12-31"/>'
    overlay = plan(nights(1, 2, 1000))
    assert apply_overlay(plan(rates(ever)), overlay, limit=300_000).count(b"<Rate ") == 2001
    for many in (1, 100):  # of the latter not all the pieces are made
        with pytest.raises(TooLarge):
            apply_overlay(plan(rates(*[ever] * many)), overlay, limit=100_000)


def test_rates_of_other_days_of_the_week_are_another_thing() -> None:
    weekend = rate("01-31", amount=9).replace("<Rate ", '<Rate Sat="1" ')
    made = apply_overlay(plan(rates(rate("01-31"))), plan(rates(weekend)))
    assert made.count(b"<Rate ") == 2


def test_what_has_no_days_is_replaced_and_stands_first() -> None:
    static = '<Rate RateTimeUnit="Day"><MealsIncluded MealPlanCodes="{}"/></Rate>'
    known = plan(rates(static.format(1), rate("01-31")))
    made = apply_overlay(known, plan(rates(static.format(12)))).decode()
    assert 'MealPlanCodes="12"' in made and 'MealPlanCodes="1"' not in made
    assert made.index("MealPlanCodes") < made.index("2027-01-31")
    # An overlay of other days leaves it.
    other = apply_overlay(known, plan(rates(rate("01-31", amount=5)))).decode()
    assert 'MealPlanCodes="1"' in other


def test_lists_offers_descriptions_and_attributes_are_merged() -> None:
    rule = '<BookingRules><BookingRule Start="2027-01-01" End="2027-01-31"/></BookingRules>'
    text = '<Description Name="{}"><Text TextFormat="PlainText">{}</Text></Description>'
    offer = '<Offers><Offer><Guests><Guest MinCount="{}"/></Guests></Offer></Offers>'
    known = plan(
        rule + rates(rate("01-31")) + offer.format(1) + text.format("title", "a"),
        CurrencyCode="EUR",
        RatePlanID="M",
    )
    extra = '<Supplements><Supplement InvType="EXTRA" InvCode="x" Amount="2"/></Supplements>'
    told = extra + offer.format(2) + text.format("title", "b") + text.format("intro", "c")
    made = apply_overlay(known, plan(told, RatePlanID="N")).decode()
    order = ["<BookingRules>", "<Rates>", "<Supplements>", "<Offers>", ">b<", ">c<"]
    assert sorted(order, key=made.index) == order
    assert 'RatePlanID="N"' in made and 'CurrencyCode="EUR"' in made
    assert ">a<" not in made and 'MinCount="1"' not in made
    # One without offers leaves them.
    assert 'MinCount="1"' in apply_overlay(known, plan(extra)).decode()


def test_supplement_for_one_room_is_another_than_that_for_all() -> None:
    extra = '<Supplement InvType="EXTRA" InvCode="x" Amount="{}" {}>{}</Supplement>'
    days = 'Start="2027-01-01" End="2027-01-31"'
    only = '<PrerequisiteInventory InvCode="DZ" InvType="ROOMTYPE"/>'
    known = plan(f"<Supplements>{extra.format(1, days, '')}</Supplements>")
    other = plan(f"<Supplements>{extra.format(2, days, only)}</Supplements>")
    assert apply_overlay(known, other).count(b"<Supplement ") == 2
    same = plan(f"<Supplements>{extra.format(3, days, '')}</Supplements>")
    assert apply_overlay(known, same).count(b"<Supplement ") == 1


def test_part_of_a_plan_is_what_touches_the_days_and_what_has_none() -> None:
    static = '<Rate RateTimeUnit="Day"/>'
    rule = '<BookingRules><BookingRule Start="2027-01-01" End="2027-01-02"/></BookingRules>'
    known = plan(rule + rates(static, rate("01-09"), rate("10-19"), rate("20-29")))
    part = select_days(known, date(2027, 1, 10), date(2027, 1, 12))
    assert said(part) == [("DZ", "10-19", "1")]
    assert b"RateTimeUnit" in part and b"BookingRule" not in part
    assert len(said(select_days(known, date(2027, 1, 10), None))) == 2
    assert len(said(select_days(known, None, date(2027, 1, 9)))) == 1


def test_title_alone_is_left_of_a_plan() -> None:
    text = '<Description Name="{}"><Text TextFormat="PlainText">x</Text></Description>'
    known = plan(rates(rate("01-09")) + text.format("title") + text.format("intro"))
    assert title_only(known) == plan(text.format("title"))
