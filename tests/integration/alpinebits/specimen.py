"""Documents with everything in them that a grammar knows, each with a value that its type takes."""

from __future__ import annotations

from lxml import etree

from alpinehub.alpinebits.grammar.notation import Choice, Element, datatype

NS = "http://www.opentravel.org/OTA/2003/05"
_VALUES = {
    **{"natural": "0", "positive": "1", "decimal": "-1.5", "amount": "0", "price": "1.5"},
    **{
        "currency": "EUR",
        "digits_4": "1227",
        "digits_8": "1",
        "digits_19": "1",
        "date": "2027-01-01",
    },
    **{"date_time": "2027-01-01T00:00:00Z", "moment": "12:00:00", "day_or_moment": "2027-01-01"},
    **{"time": "10:00:00", "day_of_any_year": "--12-24", "month_and_day": "12-24"},
    **{"month_year": "1227", "nights": "P7N", "days": "P7D", "boolean": "true", "true": "1"},
    **{"language": "de", "country": "IT", "amenity": "5.ABC", "meal_plan": "12", "room_kind": "9"},
    **{"letters_2": "VI", "letters": "ABC", "token_32": "aB9"},
    **{"zeros_then_ones": "0011", "email": "a@b", "phone": "+39047112", "uri": "x", "any": ""},
    "web": "https://example.com",
}


def specimen(root: Element, choose: int) -> etree._Element:
    """A message: each element as often as it must, once at least; of choices the `choose`-th."""
    return _made(root, choose)


def _made(one: Element, choose: int) -> etree._Element:
    element = etree.Element(f"{{{NS}}}{one.name}", nsmap={None: NS})  # type: ignore[dict-item]
    for attribute in one.attributes:
        element.set(attribute.name, _value(attribute.type))
    if one.type is not None:
        element.text = _value(one.type)
    _fill(element, one.content, choose)
    return element


def _fill(element: etree._Element, content: tuple[Element | Choice, ...], choose: int) -> None:
    for part in content:
        if isinstance(part, Choice):
            _fill(element, part.alternatives[choose % len(part.alternatives)], choose)
            continue
        for _ in range(max(1, part.least)):
            element.append(_made(part, choose))


def _value(name: str) -> str:
    if values := datatype(name).values:
        return values[-1] or values[0]
    if name.startswith("text"):
        return "x" * int(name.removeprefix("text") or 300)
    return _VALUES[name]
