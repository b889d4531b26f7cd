"""What a hotel is told about its software, in its language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpinehub.monitoring.staleness import Staleness


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    subject: str
    #: With {account} and {hours}.
    poll: str
    acknowledge: str
    #: With {count}.
    waiting: str


_WORDS = {
    "de": _Words(
        subject="Die Hotelsoftware nimmt keine Gästeanfragen an",
        poll="Die Hotelsoftware ({account}) hat sich seit {hours} Stunden nicht gemeldet.",
        acknowledge="Die Hotelsoftware ({account}) bestätigt Gästeanfragen seit {hours} Stunden "
        "nicht.",
        waiting="Offen: {count}.",
    ),
    "it": _Words(
        subject="Il software dell'hotel non riceve le richieste degli ospiti",
        poll="Il software dell'hotel ({account}) non si collega da {hours} ore.",
        acknowledge="Il software dell'hotel ({account}) non conferma le richieste degli ospiti da "
        "{hours} ore.",
        waiting="In attesa: {count}.",
    ),
    "en": _Words(
        subject="The hotel software does not take guest requests",
        poll="The hotel software ({account}) has not come for {hours} hours.",
        acknowledge="The hotel software ({account}) has not acknowledged guest requests for "
        "{hours} hours.",
        waiting="Waiting: {count}.",
    ),
}


def tell(
    staleness: Staleness, *, language: str, hotel: str, account: str, hours: int
) -> tuple[str, str]:
    """Subject and text of the mail to the hotel; English where its language is not spoken here."""
    words = _WORDS.get(language, _WORDS["en"])
    sentence = words.poll if staleness.what == "poll" else words.acknowledge
    lines = [
        sentence.format(account=account, hours=hours),
        words.waiting.format(count=staleness.waiting),
    ]
    return f"{hotel}: {words.subject}", "\n".join(lines) + "\n"
