"""An application that does at its import what no forked process can share, or nothing can."""

from __future__ import annotations

import atexit
import os
import threading
import time
from pathlib import Path

from tests.integration.server.tiny import app as app

match os.environ["AT_IMPORT"].split(":", 1):
    case ["thread"]:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    case ["open", path]:
        file = open(path, "w")
    case ["atexit", path]:
        atexit.register(lambda: Path(f"{path}-{os.getpid()}").touch())
    case ["fail"]:
        raise RuntimeError("no more of this")
    case ["exit"]:
        raise SystemExit(3)
    case ["sleep", path]:
        Path(path).touch()
        time.sleep(600)
