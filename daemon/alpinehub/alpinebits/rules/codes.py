"""Code lists of OTA and ISO, as far as what hotel software tells is held against them."""

from __future__ import annotations

import re
from typing import Final

from alpinehub.alpinebits.rules.inbound import count

#: OTA: classification of guest rooms (GRI), room amenities (RMA), categories of pictures (PIC).
ROOM_CLASSES: Final = range(1, 84)
AMENITIES: Final = range(1, 294)
PICTURES: Final = range(1, 24)

#: ISO 639-1.
_LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
    dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia
    id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo
    lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl
    ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk
    tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()
)
#: From 2024-10 on AlpineBits has amenities of its own.
_OWN_AMENITY = re.compile(r"[0-9]{1,3}\.[A-Z]{3}")


def is_language(code: str) -> bool:
    """Whether ISO 639-1 has the code."""
    return code in _LANGUAGES


def is_amenity(code: str) -> bool:
    """Whether it is a room amenity."""
    return count(code) in AMENITIES or _OWN_AMENITY.fullmatch(code) is not None
