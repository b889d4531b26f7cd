"""Whether what was rendered is what the protocol allows: checked before it is sent."""

from __future__ import annotations

from collections.abc import Sequence

from alpinehub.alpinebits import document, grammar
from alpinehub.alpinebits.guest.write import response
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.transport_error import TransportError

#: Of the renderer: goes up with each change of what it writes, so that it is checked anew.
REVISION = 2


def mark(protocol: Protocol) -> str:
    """What a version that was found valid is marked with: `delivery.rendered`."""
    return f"{protocol.name}/{REVISION}"


def find_invalid(reservations: Sequence[bytes], protocol: Protocol) -> dict[int, str]:
    """What is wrong, by the index of each that may not be sent.

    All are checked as one list (2.5 ms for a hundred); one by one only when that is not valid.
    """
    if not reservations or _find_problem(reservations, protocol) is None:
        return {}
    problems = {index: _find_problem([one], protocol) for index, one in enumerate(reservations)}
    return {index: problem for index, problem in problems.items() if problem is not None}


def _find_problem(reservations: Sequence[bytes], protocol: Protocol) -> str | None:
    try:
        root = document.parse(response(reservations))
    except TransportError as refusal:
        return refusal.text
    return grammar.check(root, protocol)
