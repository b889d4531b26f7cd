"""Telephone numbers in international form, E.164: +390471123456."""

from __future__ import annotations

#: Digits in `customer.phone_tail`: the last digits of a number are the same in all ways to write
#: it. Except on some islands, no number is shorter than this without its country code.
_TAIL = 6
#: A shorter number is not searched for in texts: it would match other numbers, too.
MIN_DIGITS = 7


def digits_of(text: str) -> str:
    """The ASCII digits of a text."""
    return "".join(c for c in text if c in "0123456789")


def tail_of(number: str) -> str:
    """The last digits of a number."""
    return number[-_TAIL:]


def e164(number: str, region: str, country: str | None = None) -> str | None:
    """The number with its country code. A number without one is read as of the guest's `country` if
    it is valid there, else as of the hotel's `region` (ISO 3166, upper case).

    None: not a possible number. An Italian landline number keeps its leading 0. The library is
    imported here: it takes 0.15 s and 2.4 MB, and only the primary and a few commands need it.
    """
    import phonenumbers

    if country and country != region and not number.startswith("+"):
        try:
            parsed = phonenumbers.parse(number, country)
        except phonenumbers.NumberParseException:
            pass  # an unknown country, or not a number
        else:
            if phonenumbers.is_valid_number(parsed):
                return phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)
    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_possible_number(parsed):
        return None
    return phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)


def written_forms(number: str, region: str, country: str | None = None) -> frozenset[str]:
    """The digits of a number in each way to write it: as given; with its country code; as in its
    country; and both, as in +43 (0)660 1234567. Without those of fewer than MIN_DIGITS.
    """
    forms = {digits_of(number)}
    if (international := e164(number, region, country)) is not None:
        import phonenumbers

        parsed = phonenumbers.parse(international)
        code, significant = (
            str(parsed.country_code),
            phonenumbers.national_significant_number(parsed),
        )
        written = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.NATIONAL)
        national = digits_of(written)
        forms |= {code + significant, significant, national, code + national}
    return frozenset(form for form in forms if len(form) >= MIN_DIGITS)
