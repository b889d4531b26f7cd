"""The states of a child, and the steps between them.

```
            spawned              hello                ready              run
  (gone) --> STARTING ------> INITIALIZING ------> READY <===========> BUSY
               |                  |                  |  ^    answer      |
               | exit             | init timeout     |  '-- answer       |
               v                  v                  v                   v
            RESTARTING <----- RESTARTING <------ UNHEALTHY (no pong, or past deadline + grace)
               | back-off, or it was alive           ^-- exit or end of file of READY and BUSY:
               '--> STARTING                             RESTARTING at once
     any --TERM, retired, its worker is gone--> TERMINATING --> (gone)
```
A dead child stays its worker's, as RESTARTING, until the next one starts: one life of the slot. A
child that comes back to a restarted manager goes through the same states in one go. One that has
calls ahead stays BUSY from one to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Of a child; GONE: there is none, before the first and after the last."""

    STARTING = "starting"
    INITIALIZING = "initializing"
    READY = "ready"
    BUSY = "busy"
    UNHEALTHY = "unhealthy"
    RESTARTING = "restarting"
    TERMINATING = "terminating"
    GONE = "gone"

    # As text: Enum's own is written in Python, and each step takes five.
    __hash__ = str.__hash__


STARTING, INITIALIZING, READY, BUSY, UNHEALTHY, RESTARTING, TERMINATING, GONE = State
_END = {RESTARTING, TERMINATING}
TRANSITIONS: Mapping[State, frozenset[State]] = {
    GONE: frozenset({STARTING}),
    STARTING: frozenset({INITIALIZING, *_END}),
    INITIALIZING: frozenset({READY, *_END}),
    READY: frozenset({BUSY, UNHEALTHY, *_END}),
    BUSY: frozenset({READY, UNHEALTHY, *_END}),
    UNHEALTHY: frozenset({READY, *_END}),
    RESTARTING: frozenset({STARTING, TERMINATING}),
    TERMINATING: frozenset({GONE}),
}
