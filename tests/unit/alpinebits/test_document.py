from __future__ import annotations

import pytest

from alpinehub.alpinebits.document import MAX_ATTRIBUTES, MAX_DEPTH, MAX_MARKUP, canonical, parse
from alpinehub.alpinebits.transport_error import TransportError

BOMB = b"""<?xml version="1.0"?><!-- x --><!DOCTYPE a [
<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">]><a>&d;</a>"""


def refused(data: bytes) -> TransportError:
    with pytest.raises(TransportError) as caught:
        parse(data)
    return caught.value


@pytest.mark.parametrize(
    "data",
    [
        b"<a>\xc3\xa4</a>",
        b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-8'?>\n<a>\xc3\xa4</a>",
        b"\n <?xml version='1.0' encoding='UTF-8'?><a>\xc3\xa4</a>\n",
        b"<a>&#228;</a>",
        b"<a><!-- <!DOCTYPE x> -->\xc3\xa4<?pi x?></a>",
    ],
)
def test_document_is_parsed_when_it_is_utf8(data: bytes) -> None:
    assert parse(data).text == "ä"


@pytest.mark.parametrize(
    "data",
    [
        BOMB,
        b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a/>',
        b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>',
        b'<!DOCTYPE a [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><a/>',
        b"<?pi?><!-- - --><!DOCTYPE a><a/>",
    ],
)
def test_document_is_refused_when_it_has_a_dtd(data: bytes) -> None:
    problem = refused(data)
    assert problem.status == 400
    assert "document type" in problem.text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"<",
        b"<a",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"plain text",
        b'{"json": 1}',
        b"<a>&undefined;</a>",
        b"<a b='1' b='2'/>",
        b"<a>\x00</a>",
        b"<a>&#0;</a>",
        b"<a>&#xD800;</a>",
        b"<a>\xed\xa0\x80</a>",
        b"<!-- never closed",
        b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>",
        b"<?xml version='1.0'?><a>\xe4</a>",
        "<?xml version='1.0' encoding='UTF-16'?><a>ä</a>".encode("utf-16"),
        "<a>ä</a>".encode("utf-16-le"),
        b"<x:a/>",
        b"<a>" * 100_000,
    ],
)
def test_document_is_refused_when_it_is_broken_or_not_utf8(data: bytes) -> None:
    assert refused(data).status == 400


def test_document_is_refused_when_it_is_nested_too_deep() -> None:
    deep = MAX_DEPTH + 1
    assert "nested" in refused(b"<a>" * deep + b"</a>" * deep).text
    parse(b"<a>" * MAX_DEPTH + b"</a>" * MAX_DEPTH)


def test_element_is_refused_when_it_has_no_canonical_form() -> None:
    with pytest.raises(TransportError, match="no absolute URI") as refusal:
        canonical(parse(b'<a xmlns:z="relative" z:a=""/>'))
    assert refusal.value.status == 400


def test_document_is_refused_when_it_has_too_many_elements() -> None:
    assert refused(b"<a>" + b"<b/>" * MAX_MARKUP + b"</a>").status == 413


def attributes(count: int, value: str = "1") -> str:
    return " ".join(f'a{number}="{value}"' for number in range(count))


@pytest.mark.parametrize("value", ["1", ">", "'>", "/>", "=", "&lt;"])
def test_element_has_no_more_attributes_than_a_parser_can_bear(value: str) -> None:
    assert len(parse(f"<a><b {attributes(MAX_ATTRIBUTES, value)}/></a>".encode())[0].attrib)
    for document in (
        f"<a><b {attributes(MAX_ATTRIBUTES + 1, value)}/></a>",
        f"<a {attributes(MAX_ATTRIBUTES + 1, value)}>{'=' * 9}</a>",
        f"<a>{'=' * 9}</a><b\n{attributes(MAX_ATTRIBUTES + 1, value)}",
    ):
        error = refused(document.encode())
        assert (error.status, error.text) == (400, "an element of the XML has too many attributes")


def test_text_may_hold_what_looks_like_attributes() -> None:
    html = '&lt;p class="x"&gt;' * 1000
    for document in (
        f"<a b='1'>{html}</a>",
        f"<a><!-- {attributes(1000)} -->{html}</a>",
        f"<a><![CDATA[{attributes(1000)}]]></a>",
    ):
        assert parse(document.encode()) is not None
