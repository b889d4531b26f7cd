"""What a browser posts of a plain HTML form: application/x-www-form-urlencoded or multipart.

The encoding is what the browser says, else UTF-8, else the one that old pages are in.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from alpinehub.multipart import Broken, Fault, media_type, read_parts
from alpinehub.webhooks.submission import Answer, Submission, Unreadable, bounded, check_count
from alpinehub.webhooks.values import line

_MAX_NAME = 128
_MAX_PARTS = 1000
#: What is wrong with a body, as the review list tells it.
_CODES: dict[Fault, str] = {
    "no_boundary": "no_boundary", "cut_off": "cut_off", "too_many_parts": "too_many_fields",
}  # fmt: skip
_UTM = ("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_id")


def read(body: bytes, content_type: str, honeypot: str) -> Submission:
    """The submission in a body. Raises: Unreadable.

    `honeypot`: a field that people do not see; what fills it is no guest.
    """
    said = read_fields(body, content_type)
    trapped = bool(honeypot) and bool(said.pop(honeypot, "").strip())
    return Submission(
        answers=tuple(
            Answer(name, "", value)
            for name, value in said.items()
            if not name.startswith(("_", "utm_"))
        ),
        form_key=line(said.get("_form", ""))[:_MAX_NAME],
        utm={
            name[4:]: value.strip()[:1024]
            for name, value in said.items()
            if name in _UTM and value.strip()
        },
        set_aside="spam" if trapped else "",
    )


def read_fields(body: bytes, content_type: str) -> dict[str, str]:
    """The fields in a body by their names, hidden ones too. Raises: Unreadable."""
    if media_type(content_type) == "multipart/form-data":
        pairs = _multipart(body, content_type)
    else:
        pairs = _urlencoded(body, content_type)
    joined: dict[str, list[str]] = {}
    for name, value in pairs:
        if name:  # as long as some form builders make it of the question
            joined.setdefault(name[:_MAX_NAME], []).append(value)
    check_count(len(joined))
    return {name: bounded(", ".join(filter(None, values))) for name, values in joined.items()}


def _urlencoded(body: bytes, content_type: str) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(
            body.decode("latin-1"), keep_blank_values=True, encoding="latin-1",
            max_num_fields=_MAX_PARTS,
        )  # fmt: skip
    except ValueError:
        raise Unreadable("too_many_fields") from None
    if body.strip() and not pairs:
        raise Unreadable("not_a_form")
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    return _decoded(raw, content_type)


def _multipart(body: bytes, content_type: str) -> list[tuple[str, str]]:
    """Its fields; files are left out."""
    try:
        parts = read_parts(body, content_type, most=_MAX_PARTS)
    except Broken as broken:
        raise Unreadable(_CODES.get(broken.fault, "not_a_form")) from None
    fields = [(part.name, part.data) for part in parts if part.name and not part.is_file]
    return _decoded(fields, content_type)


def _decoded(pairs: list[tuple[bytes, bytes]], content_type: str) -> list[tuple[str, str]]:
    """Names and values in the encoding that the browser used."""
    given = dict(pairs).get(b"_charset_", b"").decode("latin-1").strip().lower()
    _, _, stated = content_type.lower().partition("charset=")
    given = given or stated.split(";", 1)[0].strip(' "')
    western = given in ("iso-8859-1", "latin1", "windows-1252")
    for encoding in ("windows-1252",) if western else ("utf-8", "windows-1252"):
        try:
            return [(name.decode(encoding), value.decode(encoding)) for name, value in pairs]
        except UnicodeDecodeError:
            continue
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]
