"""Transport errors: what is answered with a status and a line of text instead of an OTA message."""

from __future__ import annotations

BAD_CREDENTIALS = "invalid or missing username/password"
BAD_VERSION = "your current alpinebits version does not match one of the servers supported versions"
BAD_ACTION = "unknown or missing action"


class TransportError(Exception):
    """The request is not AlpineBits as it should be; `status` and "ERROR:<text>" are the answer."""

    def __init__(self, status: int, text: str, *, note: str = "") -> None:
        super().__init__(text)
        self.status = status
        #: One line, without the leading "ERROR:".
        self.text = text
        #: Added to the line in the log; without control characters.
        self.note = note
