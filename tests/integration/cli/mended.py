"""Handlers that fail until a file says that they are mended."""

from __future__ import annotations

import os
from pathlib import Path

#: Environment variable with the path of that file.
MENDED = "MENDED"


def is_mended() -> bool:
    """Whether it is there."""
    return Path(os.environ[MENDED]).exists()
