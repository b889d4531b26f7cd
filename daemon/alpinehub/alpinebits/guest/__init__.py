"""A guest request as XML of one protocol version."""

from alpinehub.alpinebits.guest.render import (
    RESPONSE_END,
    Record,
    Undeliverable,
    UndeliverableCode,
    find_invalid,
    mark,
    render,
    response,
    response_start,
)

__all__ = [
    "RESPONSE_END",
    "Record",
    "Undeliverable",
    "UndeliverableCode",
    "find_invalid",
    "mark",
    "render",
    "response",
    "response_start",
]
