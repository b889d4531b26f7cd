"""The OTA responses: success, with or without warnings, or errors; each has its root Version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from alpinehub.alpinebits import markup
from alpinehub.alpinebits.document import NAMESPACE

#: OTA error codes.
INVALID_HOTEL_CODE: Final = 392
INVALID_VALUE: Final = 320

#: Type of an Error: the application refused.
_APPLICATION_ERROR = 13

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
_VERSIONS = {"OTA_PingRS": "8.000", "OTA_ResRetrieveRS": "7.000", "OTA_NotifReportRS": "1.000"}


def opening(root: str) -> str:
    """Everything up to and with the start tag of a response."""
    return f'{_DECLARATION}<{root} xmlns="{NAMESPACE}" Version="{_VERSIONS[root]}">'


def error(root: str, code: int, message: str) -> bytes:
    """A response that says why the request was understood and refused."""
    return (
        f'{opening(root)}<Errors><Error Type="{_APPLICATION_ERROR}" Code="{code}">'
        f"{markup.text(markup.clean(message))}</Error></Errors></{root}>"
    ).encode()


def ping(common: str, echo: str) -> bytes:
    """The handshake's answer: what both can, and what the client sent."""
    return (
        f"{opening('OTA_PingRS')}<Success/><Warnings>"
        f'<Warning Type="11" Status="ALPINEBITS_HANDSHAKE">{markup.text(common)}</Warning>'
        f"</Warnings><EchoData>{markup.text(echo)}</EchoData></OTA_PingRS>"
    ).encode()


def acknowledged(unknown: Iterable[str] = ()) -> bytes:
    """Success; `unknown` are IDs that mean nothing here (only where the version has Warnings)."""
    warnings = "".join(
        f'<Warning Type="11" RecordID="{markup.attribute(record_id)}">'
        "no guest request with this ID was sent to this user</Warning>"
        for record_id in unknown
    )
    held = f"<Warnings>{warnings}</Warnings>" if warnings else ""
    return f"{opening('OTA_NotifReportRS')}<Success/>{held}</OTA_NotifReportRS>".encode()
