"""The notation of the grammars: the schema of a message in all protocol versions at once.

    OTA_ReadRQ                        a message; its content is indented by two spaces
      @Version! any                   an attribute and its type; "!": required
      Comment* : text                 an element, how often (? * + {1,3}), and the type of its text
      Warning mixed                   text and elements in any order
      Success open                    any content and attributes
      HotelInfo anything              the same, as the schemas of 2017-10 and 2018-10 express it
      either                          a choice: its alternatives are indented, with "or" between
      or
      like stay                       the content of the fragment with that name
      @RoomType {1|2} [2018-]         only in the protocol versions of these years
    fragment stay

Elements must be in the order of their lines. A line without years applies to all versions. The
types of attributes and texts are those of `DATATYPES`, restrictions of XML Schema's types; `text16`
is a text of 1 to 16 characters; `{a|b}` is one of these strings, `positive{1|2}` one of these
values of a type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal


class GrammarError(ValueError):
    """A grammar file of the hub is malformed."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an element."""

    name: str
    type: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """An element at its place."""

    name: str
    least: int = 1
    #: None: any number.
    most: int | None = 1
    attributes: tuple[Attribute, ...] = ()
    content: tuple[Element | Choice, ...] = ()
    #: Of the text; None: elements only.
    type: str | None = None
    kind: Literal["", "mixed", "open", "anything"] = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several sequences."""

    least: int
    most: int | None
    alternatives: tuple[tuple[Element | Choice, ...], ...]


@dataclass(slots=True)
class Line:
    """A line with the deeper ones below it."""

    where: str
    text: str
    since: int
    until: int
    inside: list[Line] = field(default_factory=list)

    @property
    def is_fragment(self) -> bool:
        """Whether it is a fragment, which messages include, and not a message."""
        return self.text.startswith("fragment ")

    def holds(self, year: int) -> bool:
        """Whether it holds in the protocol version of that year."""
        return self.since <= year <= self.until


#: Messages and fragments by name.
Grammar = Mapping[str, Line]

_YEARS = re.compile(r"(?P<text>.*?)(?: +\[(?P<since>[0-9]{4})?(?P<to>-)?(?P<until>[0-9]{4})?\])?")
_OCCURS = r"(?P<occurs>[?*+]|\{[0-9]+,[0-9]+\})?"
_ATTRIBUTE = re.compile(r"@(?P<name>\w+)(?P<required>!)? (?P<type>.+)")
_ELEMENT = re.compile(rf"(?P<name>\w+){_OCCURS}(?: : (?P<type>.+)| (?P<kind>mixed|open|anything))?")
_EITHER = re.compile(rf"either{_OCCURS}")
_ONCE = {None: (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None)}


def read_grammar(text: str, source: str) -> dict[str, Line]:
    """The messages and fragments of one file. Raises: GrammarError."""
    root = Line(source, "", 0, 9999)
    path = [root]
    for number, written in enumerate(text.splitlines(), 1):
        where = f"{source}:{number}"
        stripped = written.strip()
        if not stripped or stripped.startswith("#"):
            continue
        depth, odd = divmod(len(written) - len(written.lstrip(" ")), 2)
        if odd or depth >= len(path):
            raise GrammarError(f"{where}: indent by two spaces for each level")
        line = _line(stripped, where)
        path[depth].inside.append(line)
        path[depth + 1 :] = [line]
    found: dict[str, Line] = {}
    for line in root.inside:
        name = line.text.removeprefix("fragment ")
        if name in found or not re.fullmatch(r"\w+", name):
            raise GrammarError(f"{line.where}: {name!r} is defined twice, or is not a name")
        found[name] = line
    return found


def _line(text: str, where: str) -> Line:
    match = _YEARS.fullmatch(text)
    assert match is not None
    since, to, until = match["since"], match["to"], match["until"]
    if text.endswith("]") and not (since or until):
        raise GrammarError(f"{where}: years are [2018], [2018-], [-2018] or [2018-2020]")
    last = int(until) if until else 9999 if to or not since else int(since)
    return Line(where, match["text"], int(since or 0), last)


def message(grammar: Grammar, name: str, year: int) -> Element | None:
    """A message in the protocol version of a year; None: it has none. Raises: GrammarError."""
    line = grammar.get(name)
    if line is None or line.is_fragment or not line.holds(year):
        return None
    attributes, content = _Version(grammar, year).inside(line)
    return Element(name, attributes=attributes, content=content)


class _Version:
    """The lines of a grammar that apply to one protocol version."""

    def __init__(self, grammar: Grammar, year: int) -> None:
        self._grammar = grammar
        self._year = year

    def inside(self, line: Line) -> tuple[tuple[Attribute, ...], tuple[Element | Choice, ...]]:
        """The attributes and the content of an element."""
        attributes: dict[str, Attribute] = {}
        content: list[Element | Choice] = []
        for one in self._lines(line):
            if match := _ATTRIBUTE.fullmatch(one.text):
                name = match["name"]
                if name in attributes:
                    raise GrammarError(f"{one.where}: two attributes {name} in {self._year}")
                attributes[name] = Attribute(name, match["type"], match["required"] is not None)
            elif match := _EITHER.fullmatch(one.text):
                content.append(Choice(*_occurrences(match["occurs"]), (self._sequence(one),)))
            elif one.text == "or":
                content.append(self._joined(one, content.pop() if content else None))
            else:
                content.append(self._element(one))
        return tuple(attributes.values()), tuple(content)

    def _lines(self, line: Line) -> Iterator[Line]:
        """The lines below one that apply, with fragments replaced by their lines."""
        for one in line.inside:
            if not one.holds(self._year):
                continue
            if not one.text.startswith("like "):
                yield one
                continue
            fragment = self._grammar.get(one.text.removeprefix("like "))
            if fragment is None or not fragment.is_fragment:
                raise GrammarError(f"{one.where}: there is no such fragment")
            yield from self._lines(fragment)

    def _sequence(self, line: Line) -> tuple[Element | Choice, ...]:
        attributes, content = self.inside(line)
        if attributes:
            raise GrammarError(f"{line.where}: attributes cannot be chosen")
        return content

    def _joined(self, line: Line, before: Element | Choice | None) -> Choice:
        if not isinstance(before, Choice):
            raise GrammarError(f"{line.where}: or without either")
        alternatives = (*before.alternatives, self._sequence(line))
        return Choice(before.least, before.most, alternatives)

    def _element(self, line: Line) -> Element:
        match = _ELEMENT.fullmatch(line.text)
        if match is None:
            raise GrammarError(f"{line.where}: {line.text!r} is not understood")
        attributes, content = self.inside(line)
        least, most = _occurrences(match["occurs"])
        kind: Literal["", "mixed", "open", "anything"] = match["kind"] or ""  # type: ignore[assignment]
        return Element(match["name"], least, most, attributes, content, match["type"], kind)


def _occurrences(occurs: str | None) -> tuple[int, int | None]:
    if occurs in _ONCE:
        return _ONCE[occurs]
    least, most = (occurs or "").strip("{}").split(",")
    return int(least), int(most)


@dataclass(frozen=True, slots=True)
class Datatype:
    """A simple type."""

    #: Of XML Schema.
    base: str = "string"
    pattern: str = ""
    #: Other facets by name.
    facets: tuple[tuple[str, str], ...] = ()
    #: One of these; empty: any that the rest allows.
    values: tuple[str, ...] = ()
    #: A union of these types of XML Schema; the other fields are empty then.
    members: tuple[str, ...] = ()


_DIGITS = "[0-9]+"
_AMOUNT = r"[0-9]*\.?[0-9]*"
#: A pattern for any value: without a pattern, libxml2 does not strip white space around the value.
_ONE_WORD = r"\S+"

DATATYPES: Final[Mapping[str, Datatype]] = {
    "any": Datatype(),
    # Numbers: digits only, without the sign and exponent that XML Schema allows.
    "natural": Datatype("nonNegativeInteger", _DIGITS),
    "positive": Datatype("positiveInteger", _DIGITS),
    "decimal": Datatype("decimal"),
    "amount": Datatype("decimal", _AMOUNT, (("minInclusive", "0"),)),
    "price": Datatype("decimal", _AMOUNT, (("minExclusive", "0"),)),
    "currency": Datatype(facets=(("length", "3"),)),
    "digits_4": Datatype(pattern="[0-9]{4}"),
    "digits_8": Datatype(pattern="[0-9]{1,8}"),
    "digits_19": Datatype(pattern="[0-9]{1,19}"),
    # Days and times.
    "date": Datatype("date", _ONE_WORD),
    "date_time": Datatype("dateTime", _ONE_WORD),
    "moment": Datatype(members=("date", "dateTime", "time")),
    "day_or_moment": Datatype(members=("date", "dateTime")),
    "time": Datatype(pattern="[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"),
    "day_of_any_year": Datatype(pattern="--[0-1][0-9]-[0-3][0-9]"),
    "month_and_day": Datatype(pattern="[0-1][0-9]-[0-3][0-9]"),
    "month_year": Datatype(pattern="(0[1-9]|1[0-2])[0-9]{2}"),
    "nights": Datatype(pattern="P[0-9]+N"),
    "days": Datatype(pattern="P[0-9]+D"),
    # Codes.
    "boolean": Datatype("boolean", _ONE_WORD),
    "true": Datatype("boolean", "1|true"),
    "language": Datatype("language", "[a-z]{2}"),
    "country": Datatype(pattern="[A-Z]{2}"),
    "amenity": Datatype(pattern=r"[0-9]{1,3}(\.[A-Z]{3})?"),
    "meal_plan": Datatype(values=("1", "3", "10", "12", "14")),
    "room_kind": Datatype(values=tuple("123456789")),
    "letters_2": Datatype(pattern="[A-Z]{1,2}"),
    "letters": Datatype(pattern="[A-Z]+"),
    "token_32": Datatype(pattern="[0-9a-zA-Z]{1,32}"),
    "zeros_then_ones": Datatype(pattern="0*1*"),
    # Contacts.
    # Matches in one way only: of several, libxml2 tries each, for "\S+@\S+" a minute in a text of
    # 64 KB of "@".
    "email": Datatype(pattern=r"\S[^\s@]*@\S+"),
    "phone": Datatype(pattern=r"\+?[0-9]+"),
    "uri": Datatype("anyURI"),
    "web": Datatype("anyURI", "https?://.+"),
}

_TEXT = re.compile(r"text([0-9]*)")
_ONE_OF = re.compile(r"([a-z_0-9]*)\{(.*)\}")


def datatype(name: str) -> Datatype:
    """The type of this name. Raises: GrammarError."""
    if one_of := _ONE_OF.fullmatch(name):
        base = datatype(one_of[1] or "any")
        return replace(base, values=tuple(one_of[2].split("|")))
    if text := _TEXT.fullmatch(name):
        longest = (("maxLength", text[1]),) if text[1] else ()
        return Datatype(facets=(("minLength", "1"), *longest))
    try:
        return DATATYPES[name]
    except KeyError:
        raise GrammarError(f"{name!r} is no type of values") from None
