"""How a grammar is read: what it may say, and what a mistake in it is told by."""

from __future__ import annotations

import re

import pytest
from lxml import etree

from alpinehub.alpinebits.grammar.notation import (
    Attribute,
    Choice,
    Datatype,
    Element,
    GrammarError,
    datatype,
    message,
    read_grammar,
)
from alpinehub.alpinebits.grammar.schema import explain, write_schema

GRAMMAR = """
# A comment.
Order [2018-]
  @ID! text32
  @Kind {a|b} [-2019]
  @Kind {a|b|c} [2020-]
  like lines
  either+ [2020-]
    Paid
    On : date
  or [2020-]
    Free open
  Note{0,3} mixed
    @Old any [2018]

fragment lines
  Line* : text
    @Number natural
"""


def read(year: int, text: str = GRAMMAR, name: str = "Order") -> Element | None:
    return message(read_grammar(text, "test.g"), name, year)


def test_message_is_what_its_version_has() -> None:
    line = Element("Line", 0, None, (Attribute("Number", "natural"),), type="text")
    note = Element("Note", 0, 3, kind="mixed")
    known = Attribute("ID", "text32", required=True)
    old = Element("Note", 0, 3, (Attribute("Old", "any"),), kind="mixed")
    assert read(2017) is None
    assert read(2018) == Element(
        "Order", attributes=(known, Attribute("Kind", "{a|b}")), content=(line, old)
    )
    paid = (Element("Paid"), Element("On", type="date"))
    choice = Choice(1, None, (paid, (Element("Free", kind="open"),)))
    assert read(2024) == Element(
        "Order", attributes=(known, Attribute("Kind", "{a|b|c}")), content=(line, choice, note)
    )


def test_fragment_is_no_message_and_neither_is_what_is_not_told() -> None:
    assert read(2024, name="lines") is None
    assert read(2024, name="Nothing") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A\n   B", "test.g:2: indent by two spaces"),
        ("A\n    B", "test.g:2: indent by two spaces"),
        ("A\nA", "test.g:2: 'A' is defined twice"),
        ("A b", "test.g:1: 'A b' is defined twice, or is not a name"),
        ("A\n  B [-]", "test.g:2: years are"),
        ("A\n  B [soon]", "test.g:2: years are"),
        ("A\n  @b any\n  @b text", "test.g:3: two attributes b in 2020"),
        ("A\n  like b", "test.g:2: there is no such fragment"),
        ("A\n  like B\nB", "test.g:2: there is no such fragment"),
        ("A\n  or\n    B", "test.g:2: or without either"),
        ("A\n  either\n    @b any", "test.g:2: attributes cannot be chosen"),
        ("A\n  B! : text", "test.g:2: 'B! : text' is not understood"),
    ],
)
def test_mistake_is_told_by_its_line(text: str, problem: str) -> None:
    with pytest.raises(GrammarError, match="^" + re.escape(problem)):
        read(2020, text, "A")


def test_types_are_named_or_listed() -> None:
    assert datatype("text") == Datatype(facets=(("minLength", "1"),))
    assert datatype("text8").facets == (("minLength", "1"), ("maxLength", "8"))
    assert datatype("{a|b c|}").values == ("a", "b c", "")
    assert datatype("positive{1|25}").base == "positiveInteger"
    for name in ("", "txt", "text8x", "nothing{1}"):
        with pytest.raises(GrammarError):
            datatype(name)


def test_schema_takes_what_the_grammar_says() -> None:
    root = read(2024)
    assert root is not None
    schema = etree.XMLSchema(etree.fromstring(write_schema(root)))

    def taken(inside: str, attributes: str = 'ID="1"') -> bool:
        start = f'<Order xmlns="http://www.opentravel.org/OTA/2003/05" {attributes}>'
        return schema.validate(etree.fromstring(f"{start}{inside}</Order>"))

    assert taken("<Free/>")
    assert taken('<Line Number="0">x</Line><Free><x/></Free><Paid/><On>2027-01-01</On>')
    assert taken("<Free/><Note>x</Note>", 'ID="1" Kind="c"')
    assert not taken("")
    assert not taken("<Free/>", "")
    assert not taken("<Free/>", 'ID="1" Kind="d"')
    assert not taken("<Free/><Line>x</Line>")
    assert not taken("<Line/><Free/>")
    assert not taken("<Paid/>")
    assert not taken("<Free/>" + "<Note/>" * 4)
    assert not taken("<Free>" + "</Free>x")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Element '{n}A': The attribute 'b' is required but missing., line 3", "A/@b is missing"),
        ("Element 'A', attribute 'b': The attribute 'b' is not allowed.", "A/@b is not allowed"),
        (
            "Element '{n}A', attribute 'b': [facet 'pattern'] The value 'secret' is",
            "A/@b is not valid",
        ),
        ("Element '{n}A': 'secret' is not a valid value of the type", "the text of A is not valid"),
        ("something else", "the text of the document is not valid"),
    ],
)
def test_explanation_names_the_place_and_not_the_value(message: str, said: str) -> None:
    assert explain(message) == said
