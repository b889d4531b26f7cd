"""Inline images of a mail, stored with it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from cordata.errors import PermanentError

_NAME = re.compile(r"[\w.-]{1,64}\Z", re.ASCII)
_TYPE = re.compile(r"image/[a-z0-9.+-]{1,32}\Z")


class InlineImage(msgspec.Struct, frozen=True):
    """An image within a mail's HTML, which refers to it by `<img src="cid:NAME">`."""

    #: Letters, digits, `.`, `_` and `-`.
    name: str
    #: Media type, for example `image/png`.
    type: str
    data: bytes


def check_inline_images(inline: Iterable[InlineImage]) -> None:
    """Raises: PermanentError when a name or type is not valid in a header."""
    for one in inline:
        if not _NAME.match(one.name) or not _TYPE.match(one.type):
            raise PermanentError(
                f"inline image {one.name!r} needs a plain name and a media type (image/...)"
            )


def read_inline_images(text: str | None) -> list[InlineImage]:
    """The inline images in a mail's row (JSON); None: it has none."""
    return msgspec.json.decode(text, type=list[InlineImage]) if text else []
