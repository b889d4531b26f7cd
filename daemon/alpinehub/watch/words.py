"""What a hotel is told about its software, in its language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpinehub.watch.silence import Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    subject: str
    #: With {user} and {hours}.
    poll: str
    acknowledge: str
    #: With {count}.
    waiting: str


_WORDS = {
    "de": _Words(
        subject="Die Hotelsoftware nimmt keine Gästeanfragen an",
        poll="Die Hotelsoftware ({user}) hat sich seit {hours} Stunden nicht gemeldet.",
        acknowledge="Die Hotelsoftware ({user}) bestätigt Gästeanfragen seit {hours} Stunden "
        "nicht.",
        waiting="Offen: {count}.",
    ),
    "it": _Words(
        subject="Il software dell'hotel non riceve le richieste degli ospiti",
        poll="Il software dell'hotel ({user}) non si collega da {hours} ore.",
        acknowledge="Il software dell'hotel ({user}) non conferma le richieste degli ospiti da "
        "{hours} ore.",
        waiting="In attesa: {count}.",
    ),
    "en": _Words(
        subject="The hotel software does not take guest requests",
        poll="The hotel software ({user}) has not come for {hours} hours.",
        acknowledge="The hotel software ({user}) has not acknowledged guest requests for {hours} "
        "hours.",
        waiting="Waiting: {count}.",
    ),
}


def tell(silence: Silence, *, language: str, hotel: str, user: str, hours: int) -> tuple[str, str]:
    """Subject and text of the mail to the hotel; English where its language is not spoken here."""
    words = _WORDS.get(language, _WORDS["en"])
    sentence = words.poll if silence.what == "poll" else words.acknowledge
    lines = [sentence.format(user=user, hours=hours), words.waiting.format(count=silence.waiting)]
    return f"{hotel}: {words.subject}", "\n".join(lines) + "\n"
