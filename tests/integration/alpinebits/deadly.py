"""Pools whose children cannot process a large message, or large stored data: they die of it, do not
end, or fail.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from alpinehub.alpinebits.call import CONVERT_LARGE, READ_LARGE
from cordata import App


def _pool(what: str) -> App:
    app = App(what)
    for command in (READ_LARGE, CONVERT_LARGE):
        app.command(command, at=f"{__name__}:{what}")
    return app


def die(payload: Any, session: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stay(payload: Any, session: Any) -> None:
    signal.pause()


def fail(payload: Any, session: Any) -> None:
    raise ValueError("no such letter")


dying, staying, failing = _pool("die"), _pool("stay"), _pool("fail")
