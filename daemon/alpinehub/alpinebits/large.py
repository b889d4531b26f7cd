"""Reading in a child of the pool: the command that `call.py` calls for a large document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from alpinehub.alpinebits.acknowledging import REPORT
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import Reader, Reading, read_here
from alpinehub.alpinebits.rules.content import CONTENT
from alpinehub.alpinebits.rules.events import EVENTS
from alpinehub.alpinebits.rules.freerooms import AVAIL, COUNTS
from alpinehub.alpinebits.rules.rate_plans import RATES
from alpinehub.alpinebits.transport_error import TransportError

#: By the name of the root element.
READERS: Mapping[str, Reader[Any]] = {
    reader.root: reader for reader in (REPORT, AVAIL, COUNTS, CONTENT, RATES, EVENTS)
}


def read_large(payload: dict[str, Any], session: object) -> Reading:
    """The command `read_message`: {document, protocol, root}."""
    protocol, reader = PROTOCOLS[payload["protocol"]], READERS[payload["root"]]
    try:
        told = read_here(payload["document"], protocol, reader)
    except TransportError as problem:
        return Reading(status=problem.status, text=problem.text)
    return Reading(told=msgspec.msgpack.encode(told))
