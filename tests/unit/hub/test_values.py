"""What guests write into fields: read, or said not to be readable; never guessed."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

import pytest

from alpinehub.webhooks.days import DateOrder, read_day, read_days
from alpinehub.webhooks.field_names import stem, target_of_key, target_of_label
from alpinehub.webhooks.stay import Children, read_adults, read_children, read_guests
from alpinehub.webhooks.values import (
    read_count,
    read_country,
    read_gender,
    read_language,
    read_phone,
    read_yes,
)

ROME, APIA = ZoneInfo("Europe/Rome"), ZoneInfo("Pacific/Apia")
FIRST = date(2027, 2, 1)


@pytest.mark.parametrize(
    "text",
    ["2027-02-01", "2027-2-1", "1.2.2027", "01. 02. 2027", "01.02.27", "1/2/2027", "01-02-2027",
     "1. Februar 2027", "1. Feb. 2027", "1° febbraio 2027", "1 febbraio 2027", "1 Feb 2027",
     "February 1, 2027", "Feb 1st, 2027", "1st of February 2027", "Montag, 1. Februar 2027",
     "lun., 1 feb. 2027", "Mon, February 1, 2027", " 2027-02-01\u00a0", "2027-01-31T23:00:00Z",
     "2027-02-01T00:00:00.000+01:00", "2027-02-01 00:00", "01.02.2027, 14:30 Uhr",
     "1.2.2027 9.00 Uhr", "lunedì 1 febbraio 2027", "1er février 2027", "1 févr. 2027",
     "lundi 1 février 2027", "lun., 1 févr. 2027", "1/2/2027 à 14h30", "Lundi 1 février 2027 14 h"],
)  # fmt: skip
def test_day_is_read_as_people_write_it(text: str) -> None:
    assert read_day(text, "dmy", ROME) == FIRST


@pytest.mark.parametrize(
    "text",
    ["2027-02-29", "29.2.2027", "31.4.2027", "0.1.2027", "1.13.2027", "2027-13-01", "0000-01-01",
     "9999-01-01", "1.2.", "Februar 2027", "1. Foo 2027", "morgen", "1.2.2027 oder 3.2.2027", "",
     "20270201", "1/2-2027", "2027-02-30T10:00:00Z", "1801440000000", "x" * 500, "²/1/2027"],
)  # fmt: skip
def test_day_that_is_none_is_none(text: str) -> None:
    assert read_day(text, "dmy", ROME) is None


@pytest.mark.parametrize(
    ("order", "text", "day"),
    [
        ("dmy", "2/1/2027", date(2027, 1, 2)),
        ("mdy", "2/1/2027", FIRST),
        ("mdy", "1.2.2027", FIRST),
        ("mdy", "13/1/2027", None),
        ("dmy", "1/13/2027", None),
    ],
)
def test_order_of_day_and_month_counts_only_between_slashes(
    order: DateOrder, text: str, day: date | None
) -> None:
    assert read_day(text, order, ROME) == day


def test_moment_is_the_day_that_the_hotel_has() -> None:
    # The nights of Europe's clock changes, and the day that Samoa left out.
    assert read_day("2026-03-28T23:30:00Z", "dmy", ROME) == date(2026, 3, 29)
    assert read_day("2026-10-24T22:30:00Z", "dmy", ROME) == date(2026, 10, 25)
    assert read_day("2026-10-25T23:30:00Z", "dmy", ROME) == date(2026, 10, 26)
    assert read_day("2011-12-30T09:59:00Z", "dmy", APIA) == date(2011, 12, 29)
    assert read_day("2011-12-30T10:00:00Z", "dmy", APIA) == date(2011, 12, 31)
    assert read_day("9999-12-31T23:59:59Z", "dmy", APIA) is None


def test_two_days_are_read_from_one_field() -> None:
    span = FIRST, date(2027, 2, 8)
    for text in ("01.02.2027 - 08.02.2027", "1.2.2027 bis 8.2.2027", "2027-02-01/2027-02-08",
                 "dal 1/2/2027 al 8/2/2027", "du 1/2/2027 au 8/2/2027",
                 "1. Februar 2027 – 8. Februar 2027"):  # fmt: skip
        assert read_days(text, "dmy", ROME) == span, text
    for text in ("01.02.2027", "1.2.2027, 2.2.2027, 3.2.2027", "1.2. - 8.2.2027", "im Februar"):
        assert read_days(text, "dmy", ROME) is None, text


def test_counts_ages_and_guests_are_read_or_not() -> None:
    counts = {
        "2": 2,
        "2.0": 2,
        "2 Personen": 2,
        "02": 2,
        "keine": 0,
        "0": 0,
        "nessuno": 0,
        "2 personnes": 2,
        "aucun": 0,
    }
    for text, count in counts.items():
        assert read_count(text) == count, text
    for text in ("", "zwei", "2-3", "2 oder 3", "-1", "2.5", "1e3", "99999999"):
        assert read_count(text) is None, text
    ages = {
        "5, 8": (5, 8),
        "5 und 8 Jahre": (5, 8),
        "2 Kinder: 5, 8": (5, 8),
        "5": (5,),
        "1, 5": (1, 5),
    }
    for text, found in ages.items():
        said = read_children(text, says_ages=True)
        assert said is not None and said.ages == found, text
    assert read_children("2", says_ages=False) == Children(count=2)
    for text in ("3 Kinder: 5, 8", "18", "fünf"):
        assert read_children(text, says_ages=True) is None, text
    assert read_guests("2 Erwachsene und 2 Kinder (5, 8)") == (2, Children((5, 8), 2))
    assert read_guests("2 adultes et 2 enfants (5, 8)") == (2, Children((5, 8), 2))
    assert read_guests("2 adulti") == (2, Children()) and read_guests("4") == (4, None)
    assert read_guests("2 Kinder") is None and read_guests("wir") is None


@pytest.mark.parametrize(
    "text",
    ["8 Monate", "18 mesi", "8 months old", "8 mon.", "6 Wochen", "10 Tage", "1,5 Jahre",
     "1.5", "3,5 anni", "1/2 Jahr", "3½", "2 e mezzo", "2 (unter 3 Jahren)", "unter 3", "bis 12",
     "über 6", "ab 14 Jahren", "3-6 Jahre", "3 – 6", "5 bis 8", "da 3 a 6 anni", "sotto i 3 anni",
     "fino a 12", "più di 3", "under 3", "3 to 6", "< 3", "fast 3", "2 Kinder: 8 Monate, 3 Jahre",
     "1 Kind (bis 3 Jahre)", "8 mois", "6 semaines", "10 jours", "2 ans et demi", "moins de 3 ans",
     "de 3 à 6 ans", "entre 3 et 6", "plus de 6", "jusqu'à 12 ans", "à partir de 6 ans"],
)  # fmt: skip
@pytest.mark.parametrize("says_ages", [True, False])
def test_what_is_no_age_in_whole_years_is_none(text: str, says_ages: bool) -> None:
    assert read_children(text, says_ages=says_ages) is None


@pytest.mark.parametrize(
    "text",
    ["5,8", "5, 8", "5 / 8", "5 + 8 Jahre", "im Alter von 5 und 8 Jahren", "Alter: 5 und 8",
     "5 e 8 anni", "5 and 8 years old", "5-jährig und 8-jährig", "Max 5, Anna 8", "5J, 8J",
     "2 Kinder - 5, 8", "2 Kinder im Alter von 5 und 8", "5 et 8 ans",
     "2 enfants : 5, 8", "2 enfants de 5 et 8 ans"],
)  # fmt: skip
def test_ages_are_read_as_people_write_them(text: str) -> None:
    said = read_children(text, says_ages=True)
    assert said is not None and said.ages == (5, 8)


def test_adults_are_none_where_a_child_is_spoken_of() -> None:
    assert [read_adults(t) for t in ("2", "2 Erwachsene", "2 adultes")] == [2, 2, 2]
    for text in (
        "2 und ein Kleinkind",
        "2 e un bambino",
        "2 and a baby",
        "2 Kinder",
        "2 et un enfant",
        "2 et un bébé",
    ):
        assert read_adults(text) is None, text
    assert read_guests("2 Erwachsene, 1 Kind (8 Monate)") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+39 (0)471 123456", "+390471123456"),
        ("0039 (0) 471 / 12 34 56", "+390471123456"),
        ("+39 0471 123456", "+390471123456"),
        ("+39 (0)333 123 4567", "+393331234567"),
        ("+39 333 1234567", "+393331234567"),
        ("+43 (0)512 123456", "+43512123456"),
        ("+43 (0)390 123456", "+43390123456"),
        ("0049 (0)89 123456", "+4989123456"),
        ("(0)471 123456", "0471123456"),
        ("+39 (0)", None),
        ("123 anrufen", None),
    ],
)
def test_number_keeps_the_zero_that_is_dialled_from_abroad(text: str, number: str | None) -> None:
    found = read_phone(text)
    assert (found.number if found else None) == number


def test_boxes_countries_and_languages_are_read_in_four_languages() -> None:
    assert [read_yes(t) for t in ("Checked", "Ja, gerne", "sì", "Oui", "on", "TRUE")] == [True] * 6
    assert [read_yes(t) for t in ("Unchecked", "Nein danke", "Non merci", "no", "")] == [False] * 5
    assert read_yes("vielleicht") is None
    assert [read_country(t) for t in ("Österreich", "Germania", "États-Unis", "uk", "it")] == [
        "AT",
        "DE",
        "US",
        "GB",
        "IT",
    ]
    assert read_country("Tirol") is None
    assert [read_language(t) for t in ("Deutsch", "it-IT", "Français", "EN")] == [
        "de",
        "it",
        "fr",
        "en",
    ]
    assert [read_gender(t) for t in ("Madame", "Monsieur", "divers")] == ["female", "male", ""]


def test_names_of_fields_mean_what_they_say() -> None:
    assert [stem(k) for k in ("field:email_5139", "first_name_abae", "email")] == [
        "email",
        "first_name",
        "email",
    ]
    for label in (
        "Anreisedatum *",
        "Data di arrivo:",
        "ARRIVAL DATE",
        "Check-in",
        "Date d’arrivée",
    ):
        assert target_of_label(label) == "arrival", label
    for key in ("arrival", "check_in_12ab", "Anreise", "field:data_arrivo_0000", "date_arrivee"):
        assert target_of_key(key) == "arrival", key
    assert target_of_label("Età dei bambini") == target_of_label("Alter Kind 2") == "children"
    french = {"Prénom": "first_name", "Nom": "name", "Départ *": "departure", "Ville": "city",
              "Nombre d'enfants": "children_count", "Âge de l'enfant 2": "children",
              "Téléphone": "phone", "Courriel": "email", "Code postal": "postal_code"}  # fmt: skip
    assert {label: target_of_label(label) for label in french} == french
    # What could mean two things means nothing.
    for label in ("Datum", "Data", "Anzahl", "Numero", "Wann?"):
        assert target_of_label(label) == "", label


def test_nothing_is_read_of_a_text_whose_end_is_not_looked_at() -> None:
    """A second child, a third day behind it would be lost without a word."""
    essay = " and we like the mountains" * 10
    assert read_children(f"5{essay}, 8", says_ages=True) is None
    assert read_guests(f"2 adults, 1 child (5{essay}), 8") is None
    assert read_count(f"0{' .' * 200} 5") is None
    assert read_days(f"01.02.2027 - 08.02.2027{essay} 01.03.2027", "dmy", ROME) is None
