"""Text into XML: escaped, and without the characters that XML 1.0 cannot hold."""

from __future__ import annotations

import re

# XML 1.0, production Char: everything else cannot be written, not even as a reference.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\t": "&#9;",
        "\n": "&#10;",
        "\r": "&#13;",
    }
)


def clean(value: str) -> str:
    """The value without control characters, lone surrogates and other non-XML characters."""
    return _ILLEGAL.sub("", value)


def text(value: str) -> str:
    """A value as element content. It must be `clean`."""
    return value.translate(_TEXT)


def attribute(value: str) -> str:
    """A value between double quotes. It must be `clean`; line ends and tabs survive as references,
    where a parser would turn them into spaces.
    """
    return value.translate(_ATTRIBUTE)
