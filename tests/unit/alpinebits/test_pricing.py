"""What a rate plan must not say: each rule broken alone, beside what is right."""

from __future__ import annotations

import pytest

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import read_here
from alpinehub.alpinebits.rules.rate_plans import RATES, RatePlansMessage

DAYS, LATER = 'Start="2027-01-01" End="2027-01-31"', 'Start="2027-02-01" End="2027-02-28"'
ACROSS = 'Start="2027-01-31" End="2027-02-01"'
STATIC = (
    '<Rate RateTimeUnit="Day" UnitMultiplier="1"><BaseByGuestAmts><BaseByGuestAmt Type="7"/>'
    '</BaseByGuestAmts><MealsIncluded MealPlanIndicator="1" MealPlanCodes="12"/></Rate>'
)
TWO = '<BaseByGuestAmt NumberOfGuests="2" AgeQualifyingCode="10" AmountAfterTax="96"/>'
ONE = '<BaseByGuestAmt NumberOfGuests="1" AmountAfterTax="60"/>'
EXTRA = 'InvType="EXTRA" InvCode="x"'
FIXED = f'<Supplement {EXTRA} AddToBasicRateIndicator="1" MandatoryIndicator="1" ChargeTypeCode="1"'
FREE_NIGHT = (
    '<Offer><Discount Percent="100" NightsRequired="{}" NightsDiscounted="{}"'
    ' DiscountPattern="{}"/></Offer>'
)
DISCOUNT = FREE_NIGHT.format(7, 1, "0000001").removeprefix("<Offer>").removesuffix("</Offer>")
FAMILY = (
    '<Offer><Discount Percent="100"/><Guests><Guest AgeQualifyingCode="{}" MaxAge="6"'
    ' MinCount="{}" FirstQualifyingPosition="1" LastQualifyingPosition="{}"/></Guests></Offer>'
)
GERMAN = '<Text TextFormat="PlainText" Language="de">x</Text>'
ADULTS, CHILDREN = (
    '<Occupancy AgeQualifyingCode="10" MinAge="16"/>',
    '<Occupancy AgeQualifyingCode="8"/>',
)


def rate(days: str = DAYS, amounts: str = TWO, more: str = "", attributes: str = "") -> str:
    additional = f"<AdditionalGuestAmounts>{more}</AdditionalGuestAmounts>" if more else ""
    return (
        f'<Rate InvTypeCode="DZ" {days} {attributes}><BaseByGuestAmts>{amounts}</BaseByGuestAmts>'
        f"{additional}</Rate>"
    )


def more(code: int, ages: str = "", amount: str = 'Amount="1"') -> str:
    return f'<AdditionalGuestAmount AgeQualifyingCode="{code}" {ages} {amount}/>'


def rates(*some: str) -> str:
    return f"<Rates>{''.join(some)}</Rates>"


def rules(*some: str) -> str:
    return f"<BookingRules>{''.join(some)}</BookingRules>"


def lengths(**told: str) -> str:
    said = "".join(
        f'<LengthOfStay Time="{time}" TimeUnit="Day" MinMaxMessageType="{kind}"/>'
        for kind, time in told.items()
    )
    return f"<LengthsOfStay>{said}</LengthsOfStay>"


def supplements(*some: str) -> str:
    return f"<Supplements>{''.join(some)}</Supplements>"


def needs(kind: str, code: str) -> str:
    return f'<PrerequisiteInventory InvType="{kind}" InvCode="{code}"/>'


def first_offer(*occupancy: str, attributes: str = "", inside: str = "") -> str:
    told = "".join(occupancy) or '<Occupancy AgeQualifyingCode="10"/>'
    rule = f"<OfferRule {attributes}>{inside}{told}</OfferRule>"
    return f"<Offer><OfferRules>{rule}</OfferRules></Offer>"


def offers(*some: str) -> str:
    return f"<Offers>{''.join(some)}</Offers>"


def told(inside: str, attributes: str = "") -> RatePlansMessage:
    document = (
        '<OTA_HotelRatePlanNotifRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.000">'
        '<RatePlans HotelCode="H1"><RatePlan RatePlanNotifType="New" RatePlanCode="A"'
        f' CurrencyCode="EUR" {attributes}>{inside}</RatePlan></RatePlans>'
        "</OTA_HotelRatePlanNotifRQ>"
    )
    return read_here(document.encode(), PROTOCOLS["2024-10"], RATES)


RIGHT = {
    "nothing": "",
    "rates": rates(STATIC, rate(), rate(LATER, TWO + ONE)),
    "one day after another": rates(rate(), rate(LATER)),
    "weekdays of their own": rates(rate(attributes='Mon="1"'), rate(attributes='Tue="1"')),
    "ages": rates(rate(more=more(10) + more(8, 'MaxAge="3"') + more(8, 'MinAge="3"'))),
    "rules": rules(
        f"<BookingRule {DAYS}>{lengths(SetMinLOS='5', SetMaxLOS='5')}</BookingRule>",
        f'<BookingRule {DAYS} CodeContext="ROOMTYPE" Code="DZ"/>',
    ),
    "supplements": supplements(
        f"{FIXED}>{needs('ALPINEBITSDOW', '1111100')}</Supplement>",
        f'<Supplement {EXTRA} Amount="2" {DAYS}>{needs("ROOMTYPE", "DZ")}</Supplement>',
        f'<Supplement {EXTRA} Amount="3" {DAYS}/>',
    ),
    "offers": offers(
        first_offer(ADULTS, CHILDREN, attributes='MinAdvancedBookingOffset="P10D"'),
        FREE_NIGHT.format(7, 1, "0000001"),
        FAMILY.format(8, 2, 1),
    ),
    "description": f'<Description Name="title">{GERMAN}{GERMAN.replace("PlainText", "HTML")}'
    "</Description>",
}
OCCUPANCY = '<Occupancy AgeQualifyingCode="10" {}/>'
#: (the code of the error, what is wrong)
WRONG: dict[str, tuple[int, str]] = {
    "rates overlap": (404, rates(rate(), rate(ACROSS))),
    "a rate of a room without dates": (404, rates(rate(days=""))),
    "two static rates": (320, rates(STATIC, STATIC)),
    "the static rate is not first": (320, rates(rate(), STATIC)),
    "a static rate of no type": (320, rates(STATIC.replace('Type="7"', ""))),
    "half a unit": (321, rates(STATIC.replace('RateTimeUnit="Day"', ""))),
    "guests twice": (320, rates(rate(amounts=TWO + TWO))),
    "no guests": (321, rates(rate(amounts='<BaseByGuestAmt AmountAfterTax="1"/>'))),
    "no amount": (321, rates(rate(amounts='<BaseByGuestAmt NumberOfGuests="1"/>'))),
    "base of children": (320, rates(rate(amounts=TWO.replace('"10"', '"8"')))),
    "another currency": (320, rates(rate(amounts=TWO.replace("/>", ' CurrencyCode="CHF"/>')))),
    "adults twice": (320, rates(rate(more=more(10) + more(10)))),
    "adults with ages": (320, rates(rate(more=more(10, 'MinAge="3"')))),
    "children without ages": (320, rates(rate(more=more(8)))),
    "neither adults nor children": (321, rates(rate(more=more(7, 'MinAge="3"')))),
    "nothing for children": (321, rates(rate(more=more(8, 'MinAge="3"', "")))),
    "older than the oldest": (320, rates(rate(more=more(8, 'MinAge="6" MaxAge="6"')))),
    "an age twice": (320, rates(rate(more=more(8, 'MaxAge="6"') + more(8, 'MinAge="5"')))),
    "rules overlap": (404, rules(f"<BookingRule {DAYS}/>", f"<BookingRule {ACROSS}/>")),
    "a rule without dates": (404, rules("<BookingRule/>")),
    "a rule of some code": (321, rules(f'<BookingRule {DAYS} Code="DZ"/>')),
    "shortest longer than longest": (
        320,
        rules(f"<BookingRule {DAYS}>{lengths(SetMinLOS='6', SetMaxLOS='5')}</BookingRule>"),
    ),
    "forward too": (
        320,
        rules(
            f"<BookingRule {DAYS}>{lengths(SetForwardMinStay='6', SetForwardMaxStay='5')}"
            "</BookingRule>"
        ),
    ),
    "a length twice": (
        320,
        rules(
            f"<BookingRule {DAYS}>"
            f"<LengthsOfStay>{lengths(SetMinLOS='5')[15:-16] * 2}</LengthsOfStay>"
            "</BookingRule>"
        ),
    ),
    "half a night": (
        320,
        rules(f"<BookingRule {DAYS}>{lengths(SetMinLOS='1.5')}</BookingRule>"),
    ),
    "supplements overlap": (
        404,
        supplements(*(f'<Supplement {EXTRA} Amount="2" {days}/>' for days in (DAYS, ACROSS))),
    ),
    "two static supplements": (
        320,
        supplements(f"{FIXED}/>", f"{FIXED}>{needs('ALPINEBITSDOW', '1111100')}</Supplement>"),
    ),
    "a supplement without a price": (321, supplements(f"<Supplement {EXTRA} {DAYS}/>")),
    "a weekday on some dates": (
        320,
        supplements(
            f'<Supplement {EXTRA} Amount="2" {DAYS}>{needs("ALPINEBITSDOW", "1111100")}'
            "</Supplement>"
        ),
    ),
    "a room in general": (320, supplements(f"{FIXED}>{needs('ROOMTYPE', 'DZ')}</Supplement>")),
    "a week of six days": (
        320,
        supplements(f"{FIXED}>{needs('ALPINEBITSDOW', '111110')}</Supplement>"),
    ),
    "a discount first": (320, offers(first_offer().replace("</Offer>", DISCOUNT + "</Offer>"))),
    "nothing for whom": (321, offers("<Offer/>")),
    "no discount second": (321, offers(first_offer(), first_offer())),
    "a discount of nothing": (
        321,
        offers(first_offer(), '<Offer><Discount Percent="100"/></Offer>'),
    ),
    "free nights twice": (320, offers(first_offer(), *[FREE_NIGHT.format(7, 1, "0000001")] * 2)),
    "more free than needed": (320, offers(first_offer(), FREE_NIGHT.format(1, 2, "11"))),
    "another pattern": (320, offers(first_offer(), FREE_NIGHT.format(7, 1, "001"))),
    "no nights": (
        321,
        offers(first_offer(), '<Offer><Discount Percent="100" NightsRequired="7"/></Offer>'),
    ),
    "a family of adults": (320, offers(first_offer(), FAMILY.format(10, 1, 1))),
    "more free than there are": (320, offers(first_offer(), FAMILY.format(8, 1, 2))),
    "families twice": (320, offers(first_offer(), *[FAMILY.format(8, 1, 1)] * 2)),
    "no adults": (321, offers(first_offer(CHILDREN))),
    "adults for whom twice": (320, offers(first_offer(*[OCCUPANCY.format("")] * 2))),
    "adults to an age": (320, offers(first_offer(OCCUPANCY.format('MaxAge="16"')))),
    "children of no age": (321, offers(first_offer(OCCUPANCY.format(""), CHILDREN))),
    "an age without children": (321, offers(first_offer(ADULTS))),
    "adults who are old": (
        320,
        offers(first_offer(OCCUPANCY.format('MinAge="19"'), CHILDREN)),
    ),
    "children as old as adults": (
        320,
        offers(first_offer(ADULTS, CHILDREN.replace("/>", ' MaxAge="17"/>'))),
    ),
    "more at least than at most": (
        320,
        offers(first_offer(OCCUPANCY.format('MinOccupancy="3" MaxOccupancy="2"'))),
    ),
    "not before and not after": (
        320,
        offers(
            first_offer(attributes='MinAdvancedBookingOffset="P10D" MaxAdvancedBookingOffset="P9D"')
        ),
    ),
    "an offer for no stay": (
        320,
        offers(first_offer(inside=lengths(SetMinLOS="6", SetMaxLOS="5"))),
    ),
    "a title twice": (320, f'<Description Name="title">{GERMAN}</Description>' * 2),
    "a language twice": (
        320,
        f'<Description Name="title">{GERMAN * 2}</Description>',
    ),
    "no such language": (
        320,
        '<Description Name="title"><Text TextFormat="HTML" Language="xx">x</Text></Description>',
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_plan_that_is_right_has_no_remark(name: str) -> None:
    assert told(RIGHT[name]).findings == ()


@pytest.mark.parametrize("name", WRONG)
def test_plan_that_is_wrong_has_one_error(name: str) -> None:
    code, inside = WRONG[name]
    plans = told(inside)
    assert [(note.kind, note.code) for note in plans.findings] == [("error", code)], plans.findings
    assert plans.findings[0].text.startswith(("RatePlan 1: ", "Language", "a Language"))
    assert plans.plans == ()


def test_category_without_its_type_is_an_error() -> None:
    assert told("", 'RatePlanType="12" RatePlanCategory="X"').findings == ()
    assert [note.code for note in told("", 'RatePlanCategory="X"').findings] == [321]


def test_rooms_and_the_latest_day_are_known() -> None:
    plans = told(rates(STATIC, rate(), rate(LATER)))
    assert plans.room_types == {"DZ"}
    assert str(plans.plans[0].latest) == "2027-02-01"
