"""Arrays as PostgreSQL reads them; that it does is seen in the integration tests."""

from __future__ import annotations

import pytest

from cordata.errors import PermanentError
from cordata.store.postgres.array import array_encoder, as_text


def test_array_is_text_when_its_elements_are_numbers() -> None:
    assert array_encoder("int8", 20)([1, -2, 3]) == (b"{1, -2, 3}", 0)
    assert array_encoder("int8", 20)([1, None, True]) == (b'{"1",NULL,"1"}', 0)
    assert as_text(['a"b', "c\\d", "NULL", "", None]) == b'{"a\\"b","c\\\\d","NULL","",NULL}'


def test_array_is_binary_when_its_elements_are_texts_or_bytes() -> None:
    head = b"\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\3\0\0\0\1"
    texts = array_encoder("text", 25)(["é", None, 7])
    assert texts == (head + b"\0\0\0\2\xc3\xa9\xff\xff\xff\xff\0\0\0\x017", 1)
    data, form = array_encoder("bytea", 17)([b"\0\xff", None])
    assert form == 1 and data.endswith(b"\0\0\0\2\0\xff\xff\xff\xff\xff")
    assert array_encoder("bytea", 17)([b"a", "x"]) == (b'{"\\\\x61","x"}', 0)


@pytest.mark.parametrize("value", ["\ud800", "a\0", object(), [1]])
def test_array_is_refused_when_a_value_cannot_be_stored(value: object) -> None:
    for name, oid in (("text", 25), ("int8", 20), ("bytea", 17)):
        with pytest.raises(PermanentError):
            array_encoder(name, oid)(["a", value])
