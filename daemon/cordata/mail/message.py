"""A mail as a MIME message with encoded headers, safe from header injection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email import policy
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime

from cordata.core.inline_image import InlineImage
from cordata.errors import PermanentError

_SPECIAL = r"\s<>()\[\],;:\\\"@\x00-\x1f\x7f"
_ADDRESS = re.compile(rf"[^{_SPECIAL}]+@[^{_SPECIAL}]+\Z")
_NAMED = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>\s*\Z")
_MESSAGE_ID = re.compile(r"<[^\s<>@\x00-\x1f\x7f]+@[^\s<>@\x00-\x1f\x7f]+>\Z")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")
#: Lines stay below SMTP's limit and every server takes them: no 8BITMIME needed.
_POLICY = policy.SMTP.clone(cte_type="7bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of one conversation with the server for a mail."""

    #: Recipients to try again.
    remaining: Sequence[str]
    #: How many recipients the server refused permanently.
    refused_count: int
    accepted_count: int
    #: Reply codes of the refusals, for the log, which has no addresses.
    codes: Sequence[int]


def delivery_result(recipients: Iterable[str], refused: Mapping[str, int]) -> DeliveryResult:
    """Sort the recipients by the server's reply code; one that is not in `refused` was accepted."""
    everyone = list(recipients)
    remaining = [one for one in everyone if 400 <= refused.get(one, 0) < 500]
    gone = [one for one in everyone if one in refused and one not in remaining]
    return DeliveryResult(
        remaining=remaining,
        refused_count=len(gone),
        accepted_count=len(everyone) - len(remaining) - len(gone),
        codes=sorted(set(refused.values())),
    )


def address(text: str) -> str:
    """The bare address within `text` (`user@host` or `Name <user@host>`), its domain in ASCII.

    Raises: PermanentError when it is not an address, or its local part would need SMTPUTF8.
    """
    named = _NAMED.match(text)
    bare = (named["address"] if named else text).strip(" ")
    if _CONTROLS.search(text) or not _ADDRESS.match(bare):
        raise PermanentError("not an e-mail address")
    local, _, domain = bare.rpartition("@")
    if not local.isascii():
        raise PermanentError("the e-mail address has characters other than ASCII before the @")
    try:
        return f"{local}@{domain if domain.isascii() else domain.encode('idna').decode()}"
    except UnicodeError:
        raise PermanentError("not the domain of an e-mail address") from None


def check_address(text: str) -> None:
    """Raises: PermanentError when it cannot be the sender or a recipient of a mail."""
    _display(text)


def mime_message(
    *,
    message_id: str,
    sender: str,
    to: Iterable[str],
    subject: str,
    text: str,
    html: str | None,
    date: datetime,
    inline: Iterable[InlineImage] = (),
) -> bytes:
    """The message in RFC 5322 form with CRLF line ends: text and HTML as alternatives, and the
    pictures of the HTML.

    Raises: PermanentError when sender, recipient or Message-ID are malformed.
    """
    if not _MESSAGE_ID.match(message_id):
        raise PermanentError("malformed Message-ID")
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = _display(sender)
    mail["To"] = [_display(one) for one in to]
    mail["Subject"] = _CONTROLS.sub(" ", subject).strip()
    mail["Date"] = format_datetime(date)
    mail["Message-ID"] = message_id
    # RFC 3834: no vacation notice answers a report.
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(text)
    if html is not None:
        mail.add_alternative(html, subtype="html")
        _add_pictures(mail, inline)
    return mail.as_bytes()


def _add_pictures(mail: EmailMessage, inline: Iterable[InlineImage]) -> None:
    beside = mail.get_body(("html",))
    for one in inline:
        main, _, sub = one.type.partition("/")
        if beside is not None:
            beside.add_related(
                one.data,
                *(main, sub),
                cid=f"<{one.name}>",
                filename=f"{one.name}.{sub}",
                disposition="inline",
            )


def _display(text: str) -> Address:
    named = _NAMED.match(text)
    name = named["name"].strip(' "') if named else ""
    try:
        return Address(display_name=name, addr_spec=address(text))
    # Their text quotes the address. IndexError: the parser of Python 3.11 at `=?x?q?@y?=.example`.
    except (ValueError, IndexError, MessageError):
        raise PermanentError("not an e-mail address") from None
