"""How many examples Hypothesis looks at; EXAMPLES=10 in the environment: ten times as many."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """The number for a test that usually looks at `count`; never less than ten."""
    return max(10, round(count * float(os.environ.get("EXAMPLES", "1"))))
