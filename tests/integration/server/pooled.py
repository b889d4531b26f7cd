"""What the children of `pooling` run."""

from __future__ import annotations

import os
import time
from pathlib import Path


def start() -> None:
    """Not while the file is there."""
    while Path(os.environ.get("POOLING_SLOW", "/nowhere")).exists():
        time.sleep(0.02)


def hurry(payload: object, session: object) -> str:
    return "done"
