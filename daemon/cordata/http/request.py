"""What a request head becomes for the application and for the log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from cordata.http import journal
from cordata.http.asgi import VERSION, Scope
from cordata.http.head import HeadReader
from cordata.http.peer import Peer, TrustedProxies
from cordata.http.refused import Refused, bad_request

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:@+=/-]{1,64}")
_REQUEST_ID_LINE = re.compile(
    rb"\r\nx-request-id:[ \t]*([A-Za-z0-9._:@+=/-]{1,64})[ \t]*(?=\r\n)", re.IGNORECASE
)
_FIRST_LINE = re.compile(rb"(?:\r\n)?([A-Za-z]{1,32}) ([!-~]+)")
_MAX_LOGGED = 8192


def scope_of(
    reader: HeadReader, peer: Peer, trusted: TrustedProxies, state: dict[str, Any]
) -> Scope:
    """The ASGI scope of the head in `reader`. Raises: Refused for a path with NUL in it."""
    client, scheme = peer.client, peer.scheme
    if peer.trusted and len(reader.special) > 1:
        client, scheme, host = trusted.forwarded(peer, reader.special)
        if host is not None:
            reader.replace_host(host)
    raw_path, _, query = reader.target.partition(b"?")
    path = raw_path.decode("ascii")
    if "%" in path:
        path = unquote(path)
        if "\0" in path:
            raise bad_request("the path contains NUL")
    return {
        "type": "http",
        "asgi": VERSION,
        "http_version": reader.version,
        "method": reader.method,
        "scheme": scheme,
        "path": path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": reader.headers,
        "client": client,
        "server": peer.server,
        "state": state.copy(),
    }


def given_request_id(reader: HeadReader) -> str | None:
    """The client's X-Request-ID, when it is one, short and of safe characters."""
    given = reader.special.get(b"x-request-id")
    if given is None or _REQUEST_ID.fullmatch(given) is None:
        return None
    return given.decode("ascii")


def request_id_in(data: bytes) -> str | None:
    """The X-Request-ID in a head that was refused, so that its sender finds the line."""
    found = _REQUEST_ID_LINE.findall(data.partition(b"\r\n\r\n")[0] + b"\r\n")
    return found[0].decode("ascii") if len(found) == 1 else None


def target_in(data: bytes) -> bytes:
    """The target in a head that was refused; b"" when it has none."""
    line = _FIRST_LINE.match(data[:_MAX_LOGGED])
    return line[2] if line is not None else b""


def report_unread(
    data: bytes,
    refused: Refused,
    peer: str,
    request_id: str,
    *,
    quiet: bool,
    logged_segments: Mapping[str, int],
) -> str:
    """The line of a request whose head was refused. Returns its method, "?" when it has none."""
    line = _FIRST_LINE.match(data[:_MAX_LOGGED])
    method, target = line.groups() if line is not None else (b"?", b"?")
    name = method.decode("ascii")
    journal.report(
        status=refused.status,
        method=name,
        target=target,
        peer=peer,
        reason=refused.reason,
        request_id=request_id,
        quiet=quiet,
        logged_segments=logged_segments,
    )
    return name
