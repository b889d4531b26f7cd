"""A pool whose children die of every large message, and of all large stored data."""

from __future__ import annotations

import os
import signal
from typing import Any

from alpinehub.alpinebits.call import CONVERT_LARGE, READ_LARGE
from cordata import App

app = App("deadly")
for command in (READ_LARGE, CONVERT_LARGE):
    app.command(command, at=f"{__name__}:die")


def die(payload: Any, session: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
