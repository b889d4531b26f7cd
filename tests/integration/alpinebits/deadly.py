"""A pool whose children die of every large message."""

from __future__ import annotations

import os
import signal
from typing import Any

from alpinehub.alpinebits.call import READ_LARGE
from cordata import App

app = App("deadly")
app.command(READ_LARGE, at=f"{__name__}:die")


def die(payload: Any, session: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
