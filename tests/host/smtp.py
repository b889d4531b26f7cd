"""Runs inside a host: a mail server that keeps each message: `smtp.py ADDRESS PORT FILE`."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from aiosmtpd.controller import Controller


class Keep:
    """Appends what arrives to the file, a JSON line each."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        message = {
            "sender": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "text": envelope.content.decode("utf-8", "replace"),
        }
        with open(self.path, "a") as file:
            file.write(json.dumps(message) + "\n")
        return "250 kept"


if __name__ == "__main__":
    address, port, file = sys.argv[1:]
    Controller(Keep(file), hostname=address, port=int(port)).start()
    threading.Event().wait()
