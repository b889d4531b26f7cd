"""Sample submissions of each kind of source, in four languages."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import NamedTuple
from urllib.parse import urlencode

LANGUAGES = ("de", "it", "en", "fr")
#: Kinds that have a sample which is not passed on.
ODD_KINDS = ("google", "form")


class Sample(NamedTuple):
    """The body of a request and its content type."""

    content_type: str
    body: bytes


class _Words(NamedTuple):
    arrival: str
    departure: str
    adults: str
    children: str
    message: str
    text: str
    day: str


_WORDS = {
    "de": _Words(
        "Anreisedatum", "Abreisedatum", "Erwachsene", "Alter der Kinder", "Nachricht",
        "Haben Sie in dieser Woche noch ein Zimmer frei?", "%d.%m.%Y",
    ),
    "it": _Words(
        "Data di arrivo", "Data di partenza", "Adulti", "Età dei bambini", "Messaggio",
        "Avete ancora una camera libera in questa settimana?", "%d/%m/%Y",
    ),
    "fr": _Words(
        "Date d'arrivée", "Date de départ", "Adultes", "Âge des enfants", "Votre message",
        "Avez-vous encore une chambre libre cette semaine-là ?", "%d/%m/%Y",
    ),
    "en": _Words(
        "Arrival date", "Departure date", "Adults", "Ages of children", "Message",
        "Is there still a room for that week?", "%d %B %Y",
    ),
}  # fmt: skip


def sample(
    kind: str, *, hotel: str, language: str, number: str, secret: str, today: date, odd: bool
) -> Sample:
    """A submission. `odd`, of ODD_KINDS only: one that is not passed on to the hotel, Google's test
    lead or a form filled in by a robot.

    The guest does not exist: example.com is reserved for examples.
    """
    arrival = today + timedelta(days=30)
    stay = arrival, arrival + timedelta(days=7)
    if kind == "wix":
        return _json(_wix(_WORDS[language], language, number, *stay))
    if kind == "google":
        return _json(_google(number, secret, odd))
    if kind == "form":
        fields = _form(_WORDS[language], language, number, *stay, odd)
        return Sample("application/x-www-form-urlencoded", urlencode(fields).encode())
    return _json(_generic(_WORDS[language], hotel, language, number, *stay))


def _json(document: object) -> Sample:
    return Sample("application/json", json.dumps(document, ensure_ascii=False).encode())


def _wix(
    words: _Words, language: str, number: str, arrival: date, departure: date
) -> dict[str, object]:
    labelled = {
        words.arrival: arrival.strftime(words.day),
        words.departure: departure.strftime(words.day),
        words.adults: "2",
        words.children: "5, 8",
        words.message: words.text,
    }
    return {
        "data": {
            "formName": "alpinehub sample",
            "formId": "00000000-0000-4000-8000-000000000000",
            "submissionId": number,
            "field:first_name_abae": "Eva",
            "field:last_name_12f0": "Muster",
            "field:email_5139": "eva.muster@example.com",
            "field:phone_4c77": "+39 333 1234567",
            "field:date_picker_a7c8": arrival.isoformat(),
            "field:date_picker_7e65": departure.isoformat(),
            "field:number_7cf5": "2",
            "field:short_answer_0b1d": "5, 8",
            "field:long_answer_3524": words.text,
            "submissions": [{"label": k, "value": v} for k, v in labelled.items()],
            "contact": {
                "name": {"first": "Eva", "last": "Muster"},
                "email": "eva.muster@example.com",
                "locale": language,
            },
        }
    }


def _google(number: str, secret: str, test: bool) -> dict[str, object]:
    columns = {
        "FULL_NAME": "Eva Muster",
        "EMAIL": "eva.muster@example.com",
        "PHONE_NUMBER": "+393331234567",
        "CITY": "Bozen",
        "COUNTRY": "IT",
    }
    return {
        "lead_id": number,
        "user_column_data": [
            {"column_id": k, "column_name": k.replace("_", " ").title(), "string_value": v}
            for k, v in columns.items()
        ],
        "api_version": "1.0",
        "form_id": 1,
        "campaign_id": 2,
        "google_key": secret,
        "gcl_id": f"sample-{number}",
        **({"is_test": True} if test else {}),
    }


def _form(
    words: _Words, language: str, number: str, arrival: date, departure: date, robot: bool
) -> dict[str, str]:
    return {
        "request_id": number,
        "website_url": "x" if robot else "",
        "name": "Eva Muster",
        "email": "eva.muster@example.com",
        "phone": "+39 333 1234567",
        words.arrival: arrival.strftime(words.day),
        words.departure: departure.strftime(words.day),
        words.adults: "2",
        words.children: "5, 8",
        words.message: words.text,
        "language": language,
    }


def _generic(
    words: _Words, hotel: str, language: str, number: str, arrival: date, departure: date
) -> dict[str, object]:
    return {
        "hotel_code": hotel,
        "status": "request",
        "external_id": number,
        "arrival": arrival.isoformat(),
        "departure": departure.isoformat(),
        "adults": 2,
        "children": [5, 8],
        "first_name": "Eva",
        "last_name": "Muster",
        "email": "eva.muster@example.com",
        "phone": "+39 333 1234567",
        "language": language,
        "message": words.text,
    }
