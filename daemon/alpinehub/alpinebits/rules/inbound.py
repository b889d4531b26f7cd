"""What every inbound message says: of which hotel, what is wrong with it, what it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from alpinehub.alpinebits.outcome import Finding
from alpinehub.models import Feature, Hotel

#: OTA error codes.
INVALID_DATES: Final = 404
MISSING: Final = 321
INVALID_ROOM: Final = 402
UNABLE: Final = 450

#: Beyond it a hotel's software mistakes a year.
FAR: Final = timedelta(days=5 * 366)
TOO_FAR: Final = Finding(
    kind="warning", text="dates are too far in the future for this server to process"
)
#: Beyond these nobody reads on.
_MAX_PROBLEMS = 20
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:Z|[+-][0-9]{2}:[0-9]{2})?")
_COUNT = re.compile(r"0*([0-9]{1,5})")
#: A word, so that a sentence may say what the server does not support.
_WORDS: Final[dict[str, str]] = {
    "rooms": "distinct rooms",
    "categories": "room categories",
    "deltas": "deltas: send a complete set",
    "complete_set": "complete sets",
    "closing_seasons": "closing seasons",
    "out_of_order": "rooms out of order",
    "out_of_market": "rooms that are free but not bookable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """What a message of hotel software says of its hotel, or why it is not accepted."""

    hotel_code: str | None = None
    hotel_name: str | None = None
    #: What is wrong with it, whatever the hotel. With an error there is nothing else.
    findings: tuple[Finding, ...] = ()
    #: What the operator must have left to the hotel: of `Feature`, in any order.
    uses: frozenset[Feature] = frozenset()
    #: Categories of rooms that it tells something of.
    room_types: frozenset[str] = frozenset()

    def disabled_features(self, hotel: Hotel) -> tuple[Finding, ...]:
        """One error for each thing that is not to be done with a hotel. It was not announced, or is
        no more: a new handshake would tell.
        """
        return tuple(
            Finding(
                kind="error",
                code=UNABLE,
                text=f"this server does not support {_WORDS.get(feature, feature)}",
                status="ALPINEBITS_SEND_HANDSHAKE",
            )
            for feature in sorted(self.uses)
            if not hotel.offers(feature)
        )


def error(code: int, text: str) -> Finding:
    """Something for which nothing of the push is taken."""
    return Finding(kind="error", code=code, text=text)


class Problems:
    """The errors found in a document; no sentence repeats what the client wrote."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, code: int, text: str) -> None:
        """One more, unless there are many."""
        if len(self.findings) < _MAX_PROBLEMS:
            self.findings.append(error(code, text))

    def __bool__(self) -> bool:
        return bool(self.findings)


def day(value: str) -> date | None:
    """The day of an xs:date; its zone says nothing of a night. None: it is in no calendar."""
    match = _DAY.fullmatch(value.strip())
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def count(value: str) -> int | None:
    """A number of rooms; None: nobody has so many."""
    match = _COUNT.fullmatch(value.strip())
    return int(match[1]) if match else None
