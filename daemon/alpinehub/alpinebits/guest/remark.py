"""What no element of a version takes, in lines for a person to read; in the hotel's language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpinehub.alpinebits.markup import clean
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.reservations import ReservationData

if TYPE_CHECKING:
    from alpinehub.models import Hotel

#: pets, adults, ages of children, province.
_WORDS = {
    "de": ("Haustiere: ja", "Erwachsene", "Alter der Kinder", "Provinz"),
    "it": ("Animali: sì", "Adulti", "Età dei bambini", "Provincia"),
    "fr": ("Animaux : oui", "Adultes", "Âge des enfants", "Province"),
    "en": ("Pets: yes", "Adults", "Ages of the children", "Province"),
}


def remarks(data: ReservationData, hotel: Hotel, protocol: Protocol) -> str:
    """Some lines, or ""."""
    pets, adults, ages, province = _WORDS.get(hotel.language, _WORDS["en"])
    lines = [clean(data.extra).strip()]
    if data.pets and not protocol.pets:
        lines.append(pets)
    if not data.has_stay and data.adults > 0:
        lines.append(f"{adults}: {data.adults}")
        if data.children:
            lines.append(f"{ages}: {', '.join(map(str, data.children))}")
    if state := clean(data.state).strip():
        lines.append(f"{province}: {state}")
    return "\n".join(line for line in lines if line)
