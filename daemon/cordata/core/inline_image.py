"""Pictures within a mail, as they are stored with it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from cordata.errors import PermanentError

_NAME = re.compile(r"[\w.-]{1,64}\Z", re.ASCII)
_TYPE = re.compile(r"image/[a-z0-9.+-]{1,32}\Z")


class InlineImage(msgspec.Struct, frozen=True):
    """A picture within a mail's HTML, which shows it as `<img src="cid:NAME">`."""

    #: Letters, digits, `.`, `_` and `-`.
    name: str
    #: As in `image/png`.
    type: str
    data: bytes


def check_inline_images(inline: Iterable[InlineImage]) -> None:
    """Raises: PermanentError when one has a name or type that no header can have."""
    for one in inline:
        if not _NAME.match(one.name) or not _TYPE.match(one.type):
            raise PermanentError(f"a picture needs a plain name and a type: {one.name!r}")


def read_inline_images(text: str | None) -> list[InlineImage]:
    """As the store has them."""
    return msgspec.json.decode(text, type=list[InlineImage]) if text else []
