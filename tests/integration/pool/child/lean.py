"""A command that imports next to nothing."""

from __future__ import annotations

import sys


def look(payload: object, session: object) -> list[str]:
    return sorted(sys.modules)
