"""Reads a server's answer: the outcome, the remarks, and whether it conforms to the schema.

success, advisory, warning, error ... as `alpinebits/outcome.py` has them
rejected ............................ a status other than 200, or "ERROR:": nothing was done
unreadable .......................... 200, but not an AlpineBits message
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from alpinehub.alpinebits import document, grammar
from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.alpinebits_client.http import HttpResponse

if TYPE_CHECKING:
    from lxml.etree import _Element

ReplyOutcome = Literal["success", "advisory", "warning", "error", "rejected", "unreadable"]

#: Status of the Warning with the capabilities that client and server have in common.
HANDSHAKE_STATUS: Final = "ALPINEBITS_HANDSHAKE"
#: The Type of a Warning that is advice and takes nothing back.
_ADVISORY = "11"
#: A list of requests has no bound of its own; each has some 60 tags.
_MAX_MARKUP = 3_000_000
_MAX_TEXT_CHARS = 300
_HTML = re.compile(rb"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
#: The tag ends before the next "<": else a page of half-written tags is read once for each of them.
_TITLE = re.compile(rb"<title[^<>]*>([^<]{1,200})", re.IGNORECASE)
_HINTS: Final = {
    401: "check the user name and the password",
    403: "check the user name and the password; perhaps this address may not call",
    404: "check the URL: the server is there, AlpineBits is not at this path",
    405: "check the URL: what is there takes no POST",
    408: "the server gave up waiting for the request; try again",
    413: "send less at once",
    415: "the server does not read this form; try without --gzip",
    429: "too many attempts; wait, then try again",
    500: "the server's own failure; its operator finds the reason in its journal",
    502: "what is behind the server's proxy does not run",
    503: "the server cannot answer at the moment; try again",
    504: "what is behind the server's proxy does not answer",
}


class Remark(Struct, frozen=True, kw_only=True):
    """A Warning or an Error."""

    kind: Literal["warning", "error"]
    type: str
    code: str
    status: str
    record: str
    text: str


class Reply(Struct, frozen=True, kw_only=True):
    """A response, read."""

    outcome: ReplyOutcome
    status: int
    remarks: tuple[Remark, ...] = ()
    #: If there is no OTA message: what was answered instead, in one sentence.
    text: str = ""
    #: The next step for the user.
    hint: str = ""
    #: How the message violates the schema of its version; "": it is valid, or was not validated.
    invalid: str = ""
    #: None where there is no OTA message.
    root: _Element | None = None

    @property
    def name(self) -> str:
        """Of the message: OTA_PingRS."""
        return "" if self.root is None else str(self.root.tag).rpartition("}")[2]

    def all(self, name: str) -> Iterator[_Element]:
        """The elements of a name."""
        return iter(()) if self.root is None else self.root.iter(tag(name))


def read_reply(answer: HttpResponse, expected: str, protocol: Protocol | None = None) -> Reply:
    """Read an answer that should be a message with the root element `expected`. `protocol`: the
    version whose schema it is validated by; None: it is not.
    """
    if answer.status != 200 or answer.body.lstrip()[:6] == b"ERROR:":
        text, hint = describe_rejection(answer)
        return Reply(outcome="rejected", status=answer.status, text=text, hint=hint)
    if not answer.body.strip():
        return Reply(outcome="unreadable", status=200, text="the answer is empty")
    if _HTML.match(answer.body):
        text, hint = _page(answer.body), "check the URL: AlpineBits is not at this path"
        return Reply(outcome="unreadable", status=200, text=text, hint=hint)
    try:
        root = document.parse(answer.body, max_markup=_MAX_MARKUP)
    except TransportError as error:
        return Reply(outcome="unreadable", status=200, text=f"the answer: {error.text}")
    reply = _read(root, protocol)
    if reply.name != expected:
        text = f"the answer is not {expected} but {_short(reply.name or str(root.tag))}"
        return Reply(outcome="unreadable", status=200, text=text)
    return reply


def _read(root: _Element, protocol: Protocol | None) -> Reply:
    """The outcome: Success or Errors at the top, and the worst of the warnings."""
    remarks = tuple(_remarks(root))
    # The common capabilities are in a warning, which does not change the outcome.
    findings = [one for one in remarks if one.status != HANDSHAKE_STATUS]
    top = {str(one.tag).rpartition("}")[2] for one in root}
    outcome: ReplyOutcome = "success"
    if any(one.kind == "error" for one in remarks) or "Errors" in top:
        outcome = "error"
    elif "Success" not in top:
        outcome = "unreadable"
    elif any(one.type != _ADVISORY for one in findings):
        outcome = "warning"
    elif findings:
        outcome = "advisory"
    text = "the answer says neither Success nor Errors" if outcome == "unreadable" else ""
    invalid = grammar.check(root, protocol) if protocol is not None else None
    return Reply(
        outcome=outcome, status=200, remarks=remarks, text=text, invalid=invalid or "", root=root
    )


def _remarks(root: _Element) -> Iterator[Remark]:
    kinds: tuple[tuple[Literal["warning", "error"], str], ...] = (
        ("error", "Error"),
        ("warning", "Warning"),
    )
    for kind, name in kinds:
        for one in root.iter(tag(name)):
            yield Remark(
                kind=kind,
                type=one.get("Type", ""),
                code=one.get("Code", ""),
                status=one.get("Status", ""),
                record=one.get("RecordID", ""),
                text="".join(map(str, one.itertext())).strip(),
            )


def describe_rejection(answer: HttpResponse) -> tuple[str, str]:
    """What was answered instead of an OTA message, and what to do."""
    text = _short(answer.body.decode("utf-8", "replace").strip().removeprefix("ERROR:"))
    if _HTML.match(answer.body):
        text = _page(answer.body)
    if 300 <= answer.status < 400:
        place = _short(answer.headers.get("location", ""))
        return (
            f"HTTP {answer.status}: a redirect to {place or 'nowhere'}, which is not followed",
            "use the URL at which AlpineBits itself answers",
        )
    hint = _HINTS.get(answer.status, "")
    return f"HTTP {answer.status}: {text or 'without a text'}", hint


def _page(body: bytes) -> str:
    title = _TITLE.search(body)
    named = f" ({_short(title[1].decode('utf-8', 'replace'))})" if title else ""
    return f"a web page instead of AlpineBits{named}"


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MAX_TEXT_CHARS else f"{words[:_MAX_TEXT_CHARS]}…"
