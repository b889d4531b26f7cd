"""The outcome of a request, and the OTA response for it in a protocol version.

success ... <Success/>
advisory .. <Success/> and a Warning of Type 11, perhaps with a Status: what to send next
warning ... <Success/> and a Warning of Type 3: not everything was taken
error ..... <Errors>: nothing was
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from alpinehub.alpinebits.document import NAMESPACE, clean, escape_attribute, escape_text
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.transport_error import TransportError

#: OTA error codes.
INVALID_HOTEL_CODE: Final = 392
INVALID_VALUE: Final = 320

#: Types of Warning and Error: advisory, business rule, application error.
_ADVISORY, _RULE, _APPLICATION = 11, 3, 13
#: Most findings that name no record.
_MAX_FINDINGS = 20
_MAX_TEXT_CHARS = 500
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

Kind = Literal["advisory", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One remark on a request: an advisory, a warning or an error."""

    kind: Kind
    text: str
    #: OTA error code: of errors, and of warnings about a pushed reservation.
    code: int = 0
    #: ALPINEBITS_SEND_...: left out where the protocol version has no such value.
    status: str = ""
    #: RecordID: what it is about.
    record: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All findings; none: success."""

    findings: tuple[Finding, ...] = ()

    @property
    def kind(self) -> Literal["success", "advisory", "warning", "error"]:
        """The worst of the findings. With an error nothing of the request is stored."""
        kinds = {finding.kind for finding in self.findings}
        return next((kind for kind in _WORST_FIRST if kind in kinds), "success")


_WORST_FIRST: tuple[Kind, ...] = ("error", "warning", "advisory")


def failed(code: int, text: str, *, status: str = "") -> Outcome:
    """An outcome of one error."""
    return Outcome((Finding(kind="error", code=code, text=text, status=status),))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response:
    """What a kind of response may hold. Years: of the first protocol version that has it so."""

    #: Its attribute Version.
    version: str
    warnings: int
    errors: int = 2017
    #: Its Warnings have a Code.
    coded: bool = False
    #: Warning and Error may have one of the protocol's statuses.
    statuses: bool = True


_RESPONSES: Final[Mapping[str, _Response]] = {
    "OTA_PingRS": _Response(version="8.000", warnings=2018, errors=2020, statuses=False),
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
    """Everything up to and with the start tag of a response."""
    version = _RESPONSES[root].version
    return f'{_DECLARATION}<{root} xmlns="{NAMESPACE}" Version="{version}">'


def answer(root: str, protocol: Protocol, outcome: Outcome, inside: str = "") -> bytes:
    """A response; `inside` is what follows Success and its Warnings, as XML.

    A finding that the response cannot hold in this version is left out. Raises: TransportError
    (400) where that is the error itself.
    """
    form = _RESPONSES[root]
    statuses = protocol.statuses if form.statuses else frozenset()
    errors = [finding for finding in outcome.findings if finding.kind == "error"]
    if errors and protocol.year < form.errors:
        raise TransportError(400, clean(errors[0].text)[:_MAX_TEXT_CHARS])
    if errors:
        errors_xml = "".join(_error(finding, statuses) for finding in errors[:_MAX_FINDINGS])
        return f"{opening(root)}<Errors>{errors_xml}</Errors></{root}>".encode()
    warnings = ""
    if outcome.findings and protocol.year >= form.warnings:
        loose = islice(
            (finding for finding in outcome.findings if not finding.record), _MAX_FINDINGS
        )
        findings = (*loose, *(finding for finding in outcome.findings if finding.record))
        warnings_xml = "".join(_warning(finding, form, statuses) for finding in findings)
        warnings = f"<Warnings>{warnings_xml}</Warnings>"
    return f"{opening(root)}<Success/>{warnings}{inside}</{root}>".encode()


def _error(finding: Finding, statuses: frozenset[str]) -> str:
    """An error with a status, which asks for the next message, has the type of an advisory."""
    known = finding.status in statuses
    status = f' Status="{finding.status}"' if known else ""
    kind = _ADVISORY if known else _APPLICATION
    return f'<Error Type="{kind}" Code="{finding.code}"{status}>{_text(finding)}</Error>'


def _warning(finding: Finding, form: _Response, statuses: frozenset[str]) -> str:
    code = f' Code="{finding.code}"' if form.coded else ""
    record = f' RecordID="{escape_attribute(clean(finding.record))}"' if finding.record else ""
    status = f' Status="{finding.status}"' if finding.status in statuses else ""
    kind = _ADVISORY if finding.kind == "advisory" else _RULE
    return f'<Warning Type="{kind}"{code}{record}{status}>{_text(finding)}</Warning>'


def _text(finding: Finding) -> str:
    return escape_text(clean(finding.text)[:_MAX_TEXT_CHARS])
