"""Common parts of all inbound messages: the hotel, the findings, the features they need."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from alpinehub.alpinebits.outcome import INVALID_VALUE, UNABLE, Finding, MessageRejected, error
from alpinehub.models import Feature, Hotel

if TYPE_CHECKING:
    from lxml.etree import _Element

#: Dates later than this from today are taken for mistakes of the hotel's software.
FAR: Final = timedelta(days=5 * 366)
TOO_FAR: Final = Finding(
    kind="warning", text="dates are too far in the future for this server to process"
)
#: Further problems of one document are not reported.
_MAX_PROBLEMS = 20
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:Z|[+-][0-9]{2}:[0-9]{2})?")
_COUNT = re.compile(r"0*([0-9]{1,5})")
#: ISO 639-1.
_LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
    dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia
    id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo
    lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl
    ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk
    tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()
)
#: The names of features in errors, where it is not the feature's own name.
_WORDS: Final[dict[str, str]] = {
    "rooms": "distinct rooms",
    "categories": "room categories",
    "deltas": "deltas: send a complete set",
    "complete_set": "complete sets",
    "closing_seasons": "closing seasons",
    "out_of_order": "rooms out of order",
    "out_of_market": "rooms that are free but not bookable",
}


def any_overlap(spans: Iterable[tuple[int, int]]) -> bool:
    """Whether two spans have a number in common; both bounds are included."""
    return any(later[0] <= earlier[1] for earlier, later in pairwise(sorted(spans)))


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """A message of hotel software about its hotel, or why it is not accepted."""

    hotel_code: str | None = None
    hotel_name: str | None = None
    #: Problems that do not depend on the hotel. With an error the other fields are empty.
    findings: tuple[Finding, ...] = ()
    #: The features that must be enabled for the hotel.
    uses: frozenset[Feature] = frozenset()
    #: Categories of rooms that it mentions.
    room_types: frozenset[str] = frozenset()

    def require_features(self, hotel: Hotel) -> None:
        """Raises: MessageRejected with an error for each feature that is disabled for the hotel.
        Its status asks for a new handshake, which shows what is enabled.
        """
        disabled = [
            error(
                UNABLE,
                f"this server does not support {_WORDS.get(feature, feature)}",
                status="ALPINEBITS_SEND_HANDSHAKE",
            )
            for feature in sorted(self.uses)
            if not hotel.offers(feature)
        ]
        if disabled:
            raise MessageRejected(*disabled)


class Problems:
    """The errors found in a document; their texts never repeat what the client wrote."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, code: int, text: str) -> None:
        """Add an error, up to _MAX_PROBLEMS."""
        if len(self.findings) < _MAX_PROBLEMS:
            self.findings.append(error(code, text))

    def __bool__(self) -> bool:
        return bool(self.findings)


def day(value: str) -> date | None:
    """The day of an xs:date, whatever its zone; None: no such day exists."""
    match = _DAY.fullmatch(value.strip())
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def count(value: str) -> int | None:
    """A number of rooms, guests, ...; None: too large, or no number."""
    match = _COUNT.fullmatch(value.strip())
    return int(match[1]) if match else None


def check_texts(element: _Element, problems: Problems) -> None:
    """Check the texts inside an element: languages are those of ISO 639-1, each at most once for
    one format and list number below one parent.
    """
    seen: dict[_Element, set[tuple[str, str, str]]] = {}
    for one in element.iter():
        language = one.get("Language")
        parent = one.getparent()
        if language is None or parent is None:
            continue
        if language not in _LANGUAGES:
            problems.add(INVALID_VALUE, "Language is none of ISO 639-1")
        form = (language, one.get("TextFormat", ""), one.get("ListItem", ""))
        if form in seen.setdefault(parent, set()):
            problems.add(INVALID_VALUE, "a Language stands twice in one TextFormat")
        seen[parent].add(form)
