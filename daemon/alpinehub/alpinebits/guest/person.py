"""ResGuests: who wants to come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category

from alpinehub.alpinebits.guest.record import Undeliverable, UndeliverableCode
from alpinehub.alpinebits.markup import clean, text
from alpinehub.reservations import ReservationData

if TYPE_CHECKING:
    from alpinehub.models import Hotel

_MAX_NAME_CHARS = 64
#: Herr, Dott.ssa; street, town, postal code.
_MAX_TITLE_CHARS = 16
_MAX_LINE_CHARS, _MAX_CITY_CHARS, _MAX_POSTAL_CODE_CHARS = 255, 64, 16
#: Stands for a name that was not told: both must be there.
_NO_NAME = "-"
_VOICE = 1

_EMAIL = re.compile(r"[^\s@]+@\S+")
_LANGUAGE = re.compile(r"[a-z]{2}")
_COUNTRY = re.compile(r"[A-Z]{2}")
_NOT_DIGITS = re.compile(r"[^0-9]")
_GENDERS = {"female": "Female", "male": "Male"}


def guests(data: ReservationData, hotel: Hotel) -> str:
    """ResGuests. Raises: Undeliverable."""
    contact = clean(data.email) or clean(data.phone)
    given, surname = split_name(clean(data.first_name), clean(data.last_name), contact)
    said = {
        "Gender": _GENDERS.get(data.gender, ""),
        "BirthDate": data.birth_date.isoformat() if data.birth_date else "",
        "Language": language(data, hotel),
    }
    attributes = "".join(f' {name}="{value}"' for name, value in said.items() if value)
    return (
        f"<ResGuests><ResGuest><Profiles><ProfileInfo><Profile><Customer{attributes}><PersonName>"
        f"{_element('NamePrefix', data.prefix, _MAX_TITLE_CHARS)}"
        f"<GivenName>{text(given)}</GivenName><Surname>{text(surname)}</Surname>"
        f"{_element('NameTitle', data.title, _MAX_TITLE_CHARS)}</PersonName>"
        f"{_telephone(data)}{_email(data)}{_address(data)}"
        "</Customer></Profile></ProfileInfo></Profiles></ResGuest></ResGuests>"
    )


def language(data: ReservationData, hotel: Hotel) -> str:
    """The guest's, else the hotel's; "" when neither is one."""
    said = data.language if _LANGUAGE.fullmatch(data.language) else hotel.language
    return said if _LANGUAGE.fullmatch(said) else ""


def is_known(data: ReservationData) -> bool:
    """Whether anything is told of the guest."""
    return bool(data.first_name or data.last_name or data.email or data.phone)


def split_name(first: str, last: str, contact: str) -> tuple[str, str]:
    """Given name and surname, 1 to 64 characters each: the schema wants both.

    Where one field held the whole name, its last word is the surname; of one word alone the
    given name is "-". Who told no name is called by his contact, so that a hotelier sees whom
    he has before him.
    """
    first, last = _visible(first), _visible(last)
    if not (first and last):
        words = (first or last).split() or [contact.strip() or _NO_NAME]
        first, last = " ".join(words[:-1]) or _NO_NAME, words[-1]
    return first[:_MAX_NAME_CHARS], last[:_MAX_NAME_CHARS]


def _visible(name: str) -> str:
    """A name of nothing but invisible characters is none."""
    name = name.strip()
    return name if any(category(char)[0] not in "CMZ" for char in name) else ""


def _element(name: str, value: str, longest: int) -> str:
    """An element of a text, cut where the newest schema ends it; "" when there is none."""
    said = clean(value).strip()[:longest].rstrip()
    return f"<{name}>{text(said)}</{name}>" if said else ""


def _telephone(data: ReservationData) -> str:
    number = data.phone.strip()
    digits = _NOT_DIGITS.sub("", number)
    if not digits:
        return ""
    plus = "+" if number.startswith("+") else ""
    return f'<Telephone PhoneTechType="{_VOICE}" PhoneNumber="{plus}{digits}"/>'


def _email(data: ReservationData) -> str:
    address = clean(data.email)
    if not address:
        return ""
    if not _EMAIL.fullmatch(address):
        raise Undeliverable(UndeliverableCode.EMAIL_INVALID, "the e-mail address is not one")
    remark = ""
    if data.newsletter is not None:
        remark = f' Remark="newsletter:{"yes" if data.newsletter else "no"}"'
    return f"<Email{remark}>{text(address)}</Email>"


def _address(data: ReservationData) -> str:
    lines = (
        _element("AddressLine", data.address, _MAX_LINE_CHARS)
        + _element("CityName", data.city, _MAX_CITY_CHARS)
        + _element("PostalCode", data.postal_code, _MAX_POSTAL_CODE_CHARS)
    )
    if _COUNTRY.fullmatch(data.country):
        lines += f'<CountryName Code="{data.country}"/>'
    return f"<Address>{lines}</Address>" if lines else ""
