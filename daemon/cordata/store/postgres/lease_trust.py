"""How long a lease is valid, by the clock of its holder and by that of the server.

    holder's clock   asked ─────────────5 s─────────────> trusts itself no more
    server's clock      heard ────────────────7 s────────────────> ends the session and its lock
                        (later than `asked`)

A holder counts from the moment it *asked* for its last proof, the server from the moment it *heard*
that, which is later: so it stops two seconds before another can begin, whatever the network does in
between and however far the two clocks are apart. The two seconds are for clocks that run at
different speeds, and for what a holder has begun and not finished. What it sent before and what
arrives after that is refused by its term.
"""

from __future__ import annotations

#: How often a holder asks for a proof.
CHECK_S = 1.0
#: How long one proof is good for, by the holder's monotonic clock.
TRUST_S = 5.0
#: A session that says nothing for so long is ended by the server, by its clock.
SILENT_S = 7.0


def trusted_until(asked: float) -> float:
    """Until when a proof is good that was asked for at this moment, and that came."""
    return asked + TRUST_S


def is_trusted(deadline: float, now: float) -> bool:
    """Whether a holder may begin something in the lease's name; both by its own clock."""
    return now < deadline
