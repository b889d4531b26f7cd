"""The texts of the reports in German, Italian and English."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from cordata import from_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The texts in one language."""

    language: str
    #: strftime patterns.
    date: str
    date_time: str
    short_date: str
    title: str
    received: str
    requests: str
    reservations: str
    leads: str
    changes: str
    cancellations: str
    duplicates: str
    repeated: str
    tests: str
    spam: str
    delivered: str
    acknowledged: str
    rejected: str
    errors: str
    review: str
    by_source: str
    #: With {at}: time of the count.
    waiting: str
    nothing: str
    #: With {at} and {age}.
    since: str
    #: With {count}.
    late: str
    #: With {count}.
    undeliverable: str
    #: With {at}.
    polled: str
    acked: str
    pushed: str
    #: With {count}.
    failures: str
    never: str
    #: With {hours}; with {days}.
    hours: str
    days: str
    no_account: str
    #: With {count}: title of the chart.
    last_days: str
    #: With {count}: title of the days that had no report; the head of their first column.
    missed: str
    day: str
    made_by: str
    #: The summary of all hotels.
    portfolio_title: str
    hotel: str
    hotels: str
    open: str
    oldest: str
    last_contact: str
    #: Heads of narrow columns.
    to_review: str
    undeliverable_short: str
    errors_short: str
    #: With {hotels}.
    stale: str


_GERMAN = Words(
    language="de",
    date="%d.%m.%Y",
    date_time="%d.%m.%Y, %H:%M",
    short_date="%d.%m.",
    title="Gästeanfragen",
    received="Eingegangen",
    requests="Anfragen",
    reservations="Buchungen",
    leads="Kontakte ohne Reisedatum",
    changes="Änderungen",
    cancellations="Stornierungen",
    duplicates="Unverändert erneut gesendet",
    repeated="Gleicher Gast und Aufenthalt noch einmal",
    tests="Testsendungen",
    spam="Spam",
    delivered="An die Hotelsoftware übertragen",
    acknowledged="Von ihr bestätigt",
    rejected="Von ihr abgelehnt",
    errors="Als falsch abgelehnt",
    review="Nicht zuzuordnen, in Prüfung",
    by_source="Nach Quelle",
    waiting="Offen (Stand {at})",
    nothing="nichts",
    since="älteste seit {at} ({age})",
    late="davon {count} länger als einen Tag",
    undeliverable="davon {count} in ihrer AlpineBits-Version nicht darstellbar",
    polled="zuletzt abgefragt: {at}",
    acked="zuletzt bestätigt: {at}",
    pushed="zuletzt zugestellt: {at}",
    failures="seither {count} Mal gescheitert",
    never="nie",
    hours="{hours} h",
    days="{days} Tage",
    no_account="Keine Hotelsoftware ist angeschlossen: Nichts kann übertragen werden.",
    last_days="Eingegangen in den letzten {count} Tagen",
    missed="Bisher nicht berichtet: {count} Tage",
    day="Tag",
    made_by="Täglicher Bericht von alpinehub",
    portfolio_title="Alle Hotels",
    hotel="Hotel",
    hotels="Hotels",
    open="Offen",
    oldest="Älteste",
    last_contact="Letzter Kontakt",
    to_review="Prüfung",
    undeliverable_short="Nicht zustellbar",
    errors_short="Fehler",
    stale="Hotelsoftware meldet sich nicht: {hotels}",
)
_ITALIAN = Words(
    language="it",
    date="%d/%m/%Y",
    date_time="%d/%m/%Y, %H:%M",
    short_date="%d/%m",
    title="Richieste degli ospiti",
    received="Ricevute",
    requests="Richieste",
    reservations="Prenotazioni",
    leads="Contatti senza date",
    changes="Modifiche",
    cancellations="Cancellazioni",
    duplicates="Inviate di nuovo senza modifiche",
    repeated="Stesso ospite e soggiorno un'altra volta",
    tests="Invii di prova",
    spam="Spam",
    delivered="Trasmesse al software dell'hotel",
    acknowledged="Confermate dal software",
    rejected="Rifiutate dal software",
    errors="Rifiutate perché errate",
    review="Non attribuibili, da verificare",
    by_source="Per provenienza",
    waiting="In attesa (situazione: {at})",
    nothing="niente",
    since="la più vecchia dal {at} ({age})",
    late="di cui {count} da più di un giorno",
    undeliverable="di cui {count} non rappresentabili nella sua versione di AlpineBits",
    polled="ultima richiesta: {at}",
    acked="ultima conferma: {at}",
    pushed="ultimo invio: {at}",
    failures="da allora {count} tentativi falliti",
    never="mai",
    hours="{hours} h",
    days="{days} giorni",
    no_account="Nessun software dell'hotel è collegato: non può essere trasmesso nulla.",
    last_days="Ricevute negli ultimi {count} giorni",
    missed="Finora senza rapporto: {count} giorni",
    day="Giorno",
    made_by="Rapporto giornaliero di alpinehub",
    portfolio_title="Tutti gli hotel",
    hotel="Hotel",
    hotels="Hotel",
    open="In attesa",
    oldest="Più vecchia",
    last_contact="Ultimo contatto",
    to_review="Verifica",
    undeliverable_short="Non recapitabili",
    errors_short="Errori",
    stale="Il software dell'hotel non si collega: {hotels}",
)
_ENGLISH = Words(
    language="en",
    date="%Y-%m-%d",
    date_time="%Y-%m-%d %H:%M",
    short_date="%m-%d",
    title="Guest requests",
    received="Received",
    requests="Requests",
    reservations="Reservations",
    leads="Contacts without a date",
    changes="Changes",
    cancellations="Cancellations",
    duplicates="Sent again unchanged",
    repeated="Same guest and stay once more",
    tests="Tests",
    spam="Spam",
    delivered="Delivered to the hotel software",
    acknowledged="Acknowledged by it",
    rejected="Rejected by it",
    errors="Rejected as wrong",
    review="Could not be mapped, in review",
    by_source="By source",
    waiting="Waiting (as of {at})",
    nothing="nothing",
    since="the oldest since {at} ({age})",
    late="of which {count} for more than a day",
    undeliverable="of which {count} cannot be sent in its version of AlpineBits",
    polled="last polled: {at}",
    acked="last acknowledged: {at}",
    pushed="last pushed: {at}",
    failures="failed {count} times since",
    never="never",
    hours="{hours} h",
    days="{days} days",
    no_account="No hotel software is connected: nothing can be delivered.",
    last_days="Received in the last {count} days",
    missed="Not reported until now: {count} days",
    day="Day",
    made_by="Daily report of alpinehub",
    portfolio_title="All hotels",
    hotel="Hotel",
    hotels="Hotels",
    open="Waiting",
    oldest="Oldest",
    last_contact="Last contact",
    to_review="Review",
    undeliverable_short="Undeliverable",
    errors_short="Errors",
    stale="No contact from hotel software: {hotels}",
)
_WORDS = {words.language: words for words in (_GERMAN, _ITALIAN, _ENGLISH)}


def words_in(language: str) -> Words:
    """The texts in a language; English if there are none in it."""
    return _WORDS.get(language, _ENGLISH)


def moment_in(words: Words, us: int, time_zone: str) -> str:
    """Microseconds since the epoch as text."""
    return from_us(us).astimezone(ZoneInfo(time_zone)).strftime(words.date_time)


def age_in(words: Words, us: int) -> str:
    """An age in microseconds as text: in hours, from two days on in days."""
    hours = max(us, 0) // 3_600_000_000
    if hours < 48:
        return words.hours.format(hours=hours)
    return words.days.format(days=hours // 24)
