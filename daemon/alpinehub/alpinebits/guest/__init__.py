"""A guest request as XML of one protocol version."""

from alpinehub.alpinebits.guest.proof import find_invalid, mark
from alpinehub.alpinebits.guest.record import Record, Undeliverable, UndeliverableCode
from alpinehub.alpinebits.guest.write import RESPONSE_END, render, response, response_start

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
