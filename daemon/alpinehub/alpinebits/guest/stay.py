"""RoomStays: the nights, the guests, the room, the price."""

from __future__ import annotations

from collections import Counter
from datetime import date

from alpinehub.alpinebits.guest.record import Record, Undeliverable, UndeliverableCode
from alpinehub.alpinebits.markup import attribute, clean
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.reservations import MEAL_PLAN_CODES, ReservationData

_ROOM_KINDS = range(1, 10)


def room_stays(record: Record, protocol: Protocol) -> str:
    """RoomStays: of a request with all that would do as well. Raises: Undeliverable."""
    data = record.data
    booked = record.res_status in ("Reserved", "Modify")
    if booked and not data.room_type:
        raise Undeliverable(UndeliverableCode.ROOM_TYPE_MISSING, "a reservation needs a room type")
    if booked and data.total is None:
        raise Undeliverable(UndeliverableCode.TOTAL_MISSING, "a reservation needs a total")
    before = f"{_room_type(data, protocol)}{_rate_plan(data, booked)}{_guest_counts(data)}"
    spans = [_time_span(data, booked)]
    if record.res_status == "Requested":
        spans += [_days(other.arrival, other.departure) for other in data.alternatives]
    if len(spans) == 1:
        stays = f"<RoomStay>{before}{spans[0]}{_total(data)}</RoomStay>"
    elif protocol.stay_groups:  # each is a group of its own: instead of the others, not with them
        stays = "".join(
            f'<RoomStay RoomStayGroupID="{number}">{before}{span}'
            f"{_total(data) if number == 1 else ''}</RoomStay>"
            for number, span in enumerate(spans, 1)
        )
    else:
        others = "".join(f"<RoomStay>{span}</RoomStay>" for span in spans[1:])
        stays = f"<RoomStay>{before}{spans[0]}{_total(data)}</RoomStay>{others}"
    return f"<RoomStays>{stays}</RoomStays>"


def _time_span(data: ReservationData, booked: bool) -> str:
    """Two days, or for a request a window in which the stay may begin, and its nights."""
    arrival, latest = data.arrival, data.arrival_latest
    if arrival and data.departure:
        return _days(arrival, data.departure)
    if booked or not (arrival and latest and data.nights > 0):
        raise Undeliverable(UndeliverableCode.NO_STAY, "there is no arrival and departure")
    if latest < arrival:
        raise Undeliverable(
            UndeliverableCode.WINDOW_INVALID, "the latest arrival is before the earliest"
        )
    return (
        f'<TimeSpan Duration="P{data.nights}N"><StartDateWindow '
        f'EarliestDate="{arrival.isoformat()}" LatestDate="{latest.isoformat()}"/></TimeSpan>'
    )


def _days(arrival: date, departure: date) -> str:
    if departure <= arrival:
        raise Undeliverable(
            UndeliverableCode.DEPARTURE_BEFORE_ARRIVAL, "the departure is not after the arrival"
        )
    return f'<TimeSpan Start="{arrival.isoformat()}" End="{departure.isoformat()}"/>'


def _room_type(data: ReservationData, protocol: Protocol) -> str:
    code = clean(data.room_type)
    if len(code) > 8:
        raise Undeliverable(
            UndeliverableCode.ROOM_TYPE_LONG, "the room type is longer than 8 characters"
        )
    told = f' RoomTypeCode="{attribute(code)}"' if code else ""
    if data.room_class > 0:
        told += f' RoomClassificationCode="{data.room_class}"'
    if protocol.room_kinds and data.room_kind in _ROOM_KINDS:
        told += f' RoomType="{data.room_kind}"'
    return f"<RoomTypes><RoomType{told}/></RoomTypes>" if told else ""


def _rate_plan(data: ReservationData, booked: bool) -> str:
    """A reservation always tells its meals: where nothing was said, none were promised."""
    code = clean(data.rate_plan)
    if len(code) > 64:
        raise Undeliverable(
            UndeliverableCode.RATE_PLAN_LONG, "the rate plan is longer than 64 characters"
        )
    meals = data.meal_plan or ("room_only" if booked else None)
    if not (code or meals):
        return ""
    named = f' RatePlanCode="{attribute(code)}"' if code else ""
    if meals is None:
        return f"<RatePlans><RatePlan{named}/></RatePlans>"
    return (
        f'<RatePlans><RatePlan{named}><MealsIncluded MealPlanIndicator="true" '
        f'MealPlanCodes="{MEAL_PLAN_CODES[meals]}"/></RatePlan></RatePlans>'
    )


def _guest_counts(data: ReservationData) -> str:
    """One count of adults, without an age; children of one age are counted together."""
    if data.adults < 1:
        raise Undeliverable(UndeliverableCode.NO_ADULTS, "there are no adults")
    if any(age < 0 for age in data.children):
        raise Undeliverable(UndeliverableCode.CHILD_AGE, "a child has a negative age")
    children = "".join(
        f'<GuestCount Count="{count}" Age="{age}"/>'
        for age, count in sorted(Counter(data.children).items(), reverse=True)
    )
    return f'<GuestCounts><GuestCount Count="{data.adults}"/>{children}</GuestCounts>'


def _total(data: ReservationData) -> str:
    if data.total is None:
        return ""
    if not data.total.is_finite() or (data.total.is_signed() and data.total):
        raise Undeliverable(UndeliverableCode.TOTAL_INVALID, "the total is not an amount of money")
    currency = clean(data.currency)
    if len(currency) != 3:
        raise Undeliverable(
            UndeliverableCode.CURRENCY_UNKNOWN, "the currency of the total is not known"
        )
    amount = format(abs(data.total), "f")
    return f'<Total AmountAfterTax="{amount}" CurrencyCode="{attribute(currency)}"/>'
