"""The outcome of a request, and the OTA response for it in a protocol version.

success ... <Success/>
advisory .. <Success/> and a Warning of Type 11, perhaps with a Status: what to send next
warning ... <Success/> and a Warning of Type 3: not everything was taken
error ..... <Errors>: nothing was taken
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from alpinehub.alpinebits.document import NAMESPACE, escape_attribute, escape_text
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.transport_error import TransportError

#: OTA error codes.
INVALID_VALUE: Final = 320
MISSING: Final = 321
INVALID_HOTEL_CODE: Final = 392
INVALID_ROOM: Final = 402
INVALID_DATES: Final = 404
SYSTEM_ERROR: Final = 448
UNABLE: Final = 450

#: Types of Warning and Error: advisory, business rule, application error.
_ADVISORY, _RULE, _APPLICATION = 11, 3, 13
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

Kind = Literal["advisory", "warning", "error"]


class Finding(Struct, frozen=True, kw_only=True):
    """One remark on a request: an advisory, a warning or an error."""

    kind: Kind
    #: In our own words: nothing that the client wrote.
    text: str
    #: OTA error code of an error, or of a warning about a pushed reservation.
    code: int = 0
    #: ALPINEBITS_SEND_...: left out where the protocol version has no such value.
    status: str = ""
    #: RecordID: the guest request that it is about; "": the whole message.
    record: str = ""


class Outcome(Struct, frozen=True):
    """The findings of a request; without any it is a success."""

    findings: tuple[Finding, ...] = ()

    @property
    def kind(self) -> Literal["success", "advisory", "warning", "error"]:
        """The worst of the findings. With an error nothing of the request is stored."""
        kinds = {finding.kind for finding in self.findings}
        return next((kind for kind in _WORST_FIRST if kind in kinds), "success")


_WORST_FIRST: tuple[Kind, ...] = ("error", "warning", "advisory")


def error(code: int, text: str, *, status: str = "") -> Finding:
    """A finding for which nothing of the message is stored."""
    return Finding(kind="error", code=code, text=text, status=status)


class MessageRejected(Exception):
    """The response is these findings, at least one of them an error; its data is not stored."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.text for finding in findings))
        self.outcome = Outcome(findings)


class _Response(Struct, frozen=True, kw_only=True):
    """The elements and attributes that a kind of response has."""

    #: Its attribute Version.
    version: str
    #: Years of the first protocol versions in which it has Warnings, and Errors.
    warnings: int
    errors: int = 2017
    #: Its Warnings have a Code.
    coded: bool = False
    #: Statuses of Warning and Error; None: those of the protocol.
    statuses: frozenset[str] | None = None


_HANDSHAKE = frozenset({"ALPINEBITS_HANDSHAKE"})
_RESPONSES: Final[Mapping[str, _Response]] = {
    "OTA_PingRS": _Response(version="8.000", warnings=2018, errors=2020, statuses=_HANDSHAKE),
    "OTA_ResRetrieveRS": _Response(version="7.000", warnings=2018),
    "OTA_NotifReportRS": _Response(version="1.000", warnings=2022),
    "OTA_HotelResNotifRS": _Response(version="1.000", warnings=2018, errors=2022, coded=True),
    "OTA_HotelAvailNotifRS": _Response(version="1.001", warnings=2017),
    "OTA_HotelInvCountNotifRS": _Response(version="1.001", warnings=2020),
    "OTA_HotelDescriptiveContentNotifRS": _Response(version="3.000", warnings=2017),
    "OTA_HotelDescriptiveInfoRS": _Response(version="3.000", warnings=2022),
    "OTA_HotelRatePlanNotifRS": _Response(version="3.14", warnings=2017),
    "OTA_HotelRatePlanRS": _Response(version="3.000", warnings=2022),
    "OTA_HotelPostEventNotifRS": _Response(version="8.000", warnings=2020),
}


def opening(root: str) -> str:
    """The beginning of a response, including its start tag."""
    version = _RESPONSES[root].version
    return f'{_DECLARATION}<{root} xmlns="{NAMESPACE}" Version="{version}">'


def answer(root: str, protocol: Protocol, outcome: Outcome, content: str = "") -> bytes:
    """A response; `content` is the XML that follows Success and its Warnings.

    A warning that the response cannot have in this version is left out. Raises: TransportError
    (400) for an error that it cannot have.
    """
    form = _RESPONSES[root]
    statuses = protocol.statuses if form.statuses is None else form.statuses
    errors = [finding for finding in outcome.findings if finding.kind == "error"]
    if errors and protocol.year < form.errors:
        raise TransportError(400, errors[0].text)
    if errors:
        errors_xml = "".join(_error(finding, statuses) for finding in errors)
        return f"{opening(root)}<Errors>{errors_xml}</Errors></{root}>".encode()
    warnings = ""
    if outcome.findings and protocol.year >= form.warnings:
        warnings_xml = "".join(_warning(finding, form, statuses) for finding in outcome.findings)
        warnings = f"<Warnings>{warnings_xml}</Warnings>"
    return f"{opening(root)}<Success/>{warnings}{content}</{root}>".encode()


def _error(finding: Finding, statuses: frozenset[str]) -> str:
    """An error. With a status, which names the message to send next, it has an advisory's type."""
    known = finding.status in statuses
    status = f' Status="{finding.status}"' if known else ""
    kind = _ADVISORY if known else _APPLICATION
    return f'<Error Type="{kind}" Code="{finding.code}"{status}>{escape_text(finding.text)}</Error>'


def _warning(finding: Finding, form: _Response, statuses: frozenset[str]) -> str:
    code = f' Code="{finding.code}"' if form.coded else ""
    record = f' RecordID="{escape_attribute(finding.record)}"' if finding.record else ""
    status = f' Status="{finding.status}"' if finding.status in statuses else ""
    kind = _ADVISORY if finding.kind == "advisory" else _RULE
    return f'<Warning Type="{kind}"{code}{record}{status}>{escape_text(finding.text)}</Warning>'
