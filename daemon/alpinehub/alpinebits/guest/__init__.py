"""A guest request as XML of one protocol version."""

from alpinehub.alpinebits.guest.proof import find_invalid, mark
from alpinehub.alpinebits.guest.record import Held, HeldCode, Record
from alpinehub.alpinebits.guest.write import RESPONSE_END, render, response, response_start

__all__ = [
    "RESPONSE_END",
    "Held",
    "HeldCode",
    "Record",
    "find_invalid",
    "mark",
    "render",
    "response",
    "response_start",
]
