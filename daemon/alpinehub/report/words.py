"""The words of the report in the languages it speaks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One language."""

    language: str
    #: strftime patterns.
    date: str
    date_time: str
    title: str
    received: str
    requests: str
    reservations: str
    changes: str
    cancellations: str
    delivered: str
    acknowledged: str
    refused: str
    #: With {at}: when it was counted.
    waiting: str
    nothing: str
    #: With {at}.
    since: str
    #: With {count}.
    held: str
    no_user: str
    made_by: str


_GERMAN = Words(
    language="de",
    date="%d.%m.%Y",
    date_time="%d.%m.%Y, %H:%M",
    title="Gästeanfragen",
    received="Eingegangen",
    requests="Anfragen",
    reservations="Buchungen",
    changes="Änderungen",
    cancellations="Stornierungen",
    delivered="An die Hotelsoftware übertragen",
    acknowledged="Von ihr bestätigt",
    refused="Von ihr abgelehnt",
    waiting="Offen (Stand {at})",
    nothing="nichts",
    since="älteste seit {at}",
    held="davon {count} in ihrer AlpineBits-Version nicht darstellbar",
    no_user="Keine Hotelsoftware ist angeschlossen: Nichts kann übertragen werden.",
    made_by="Täglicher Bericht von alpinehub",
)
_ITALIAN = Words(
    language="it",
    date="%d/%m/%Y",
    date_time="%d/%m/%Y, %H:%M",
    title="Richieste degli ospiti",
    received="Ricevute",
    requests="Richieste",
    reservations="Prenotazioni",
    changes="Modifiche",
    cancellations="Cancellazioni",
    delivered="Trasmesse al software dell'hotel",
    acknowledged="Confermate dal software",
    refused="Rifiutate dal software",
    waiting="In attesa (situazione: {at})",
    nothing="niente",
    since="la più vecchia dal {at}",
    held="di cui {count} non rappresentabili nella sua versione di AlpineBits",
    no_user="Nessun software dell'hotel è collegato: non può essere trasmesso nulla.",
    made_by="Rapporto giornaliero di alpinehub",
)
_ENGLISH = Words(
    language="en",
    date="%Y-%m-%d",
    date_time="%Y-%m-%d %H:%M",
    title="Guest requests",
    received="Received",
    requests="Requests",
    reservations="Reservations",
    changes="Changes",
    cancellations="Cancellations",
    delivered="Delivered to the hotel software",
    acknowledged="Acknowledged by it",
    refused="Refused by it",
    waiting="Waiting (as of {at})",
    nothing="nothing",
    since="the oldest since {at}",
    held="of which {count} cannot be told in its version of AlpineBits",
    no_user="No hotel software is connected: nothing can be delivered.",
    made_by="Daily report of alpinehub",
)
_WORDS = {words.language: words for words in (_GERMAN, _ITALIAN, _ENGLISH)}


def words_in(language: str) -> Words:
    """The words of a language; English where it is not spoken here."""
    return _WORDS.get(language, _ENGLISH)
