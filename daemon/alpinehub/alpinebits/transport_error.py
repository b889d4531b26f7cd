"""Transport errors: answered with an HTTP status and a line of text, not with an OTA message."""

from __future__ import annotations

BAD_CREDENTIALS = "invalid or missing username/password"
BAD_VERSION = "your current alpinebits version does not match one of the servers supported versions"
BAD_ACTION = "unknown or missing action"


class TransportError(Exception):
    """A request that gets no OTA message as its answer, but `status` and "ERROR:<text>"."""

    def __init__(self, status: int, text: str, *, note: str = "") -> None:
        super().__init__(text)
        self.status = status
        #: One line, without the leading "ERROR:".
        self.text = text
        #: Added to the line in the log; without control characters.
        self.note = note
