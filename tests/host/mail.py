"""A mail server in a host, and what it got."""

from __future__ import annotations

import email
import json
from email.message import Message
from typing import Any

from tests.host.machine import Host

_FILE = "/var/lib/mails.json"


class PostOffice:
    """Takes every mail, on port 2525 of an address of its host."""

    def __init__(self, host: Host, address: str = "127.0.0.1") -> None:
        self.host = host
        self.address = address

    @property
    def settings(self) -> str:
        """The section of cordata.toml that sends there."""
        return f'[mail]\nhost = "{self.address}"\nport = 2525\nsender = "hub@example.com"\n'

    def start(self) -> None:
        """Start it, now and at each boot."""
        self.host.run("cp", "/src/tests/host/smtp.py", "/var/lib/smtp.py")
        self.host.sh(
            "printf '[Service]\\nExecStart=python3 /var/lib/smtp.py"
            f" {self.address} 2525 {_FILE}\\n[Install]\\nWantedBy=multi-user.target\\n'"
            " >/etc/systemd/system/smtp.service"
        )
        self.host.systemctl("enable", "--now", "--quiet", "smtp")

    def mails(self) -> list[dict[str, Any]]:
        """What it got: sender, recipients, text."""
        text = self.host.sh(f"cat {_FILE} 2>/dev/null || :")
        return [json.loads(line) for line in text.splitlines()]

    def messages(self) -> list[Message]:
        """The same, read as what they are."""
        return [email.message_from_string(mail["text"]) for mail in self.mails()]
