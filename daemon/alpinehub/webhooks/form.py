"""HTML forms: the fields in a body, application/x-www-form-urlencoded or multipart.

The encoding is the one that the browser names, else UTF-8, else windows-1252.
"""

from __future__ import annotations

from alpinehub.form_body import Broken, Fault, read_parts
from alpinehub.webhooks.submission import FormField, Submission, Unreadable, bounded, check_count
from alpinehub.webhooks.values import line

_MAX_NAME = 128
_MAX_PARTS = 1000
#: Codes of the review list for a body that cannot be read.
_CODES: dict[Fault, str] = {
    "no_boundary": "no_boundary", "cut_off": "cut_off", "too_many_parts": "too_many_fields",
}  # fmt: skip
_UTM = ("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_id")


def read(body: bytes, content_type: str, honeypot: str) -> Submission:
    """The submission in a body. Raises: Unreadable.

    `honeypot`: a field that people do not see; a robot fills it in.
    """
    values = _read_fields(body, content_type)
    trapped = bool(honeypot) and bool(values.pop(honeypot, "").strip())
    return Submission(
        answers=tuple(
            FormField(name, "", value)
            for name, value in values.items()
            if not name.startswith(("_", "utm_"))
        ),
        form_key=line(values.get("_form", ""))[:_MAX_NAME],
        utm={
            name[4:]: value.strip()[:1024]
            for name, value in values.items()
            if name in _UTM and value.strip()
        },
        proof=values.get("_proof", "").strip(),
        ignored="spam" if trapped else "",
    )


def _read_fields(body: bytes, content_type: str) -> dict[str, str]:
    """The fields in a body by their names, hidden ones too, without files. Raises: Unreadable."""
    try:
        parts = read_parts(body, content_type, most=_MAX_PARTS)
    except Broken as broken:
        raise Unreadable(_CODES.get(broken.fault, "not_a_form")) from None
    if body.strip() and not parts:
        raise Unreadable("not_a_form")
    fields = [(part.name, part.data) for part in parts if part.name and not part.is_file]
    joined: dict[str, list[str]] = {}
    for name, value in _decoded(fields, content_type):
        # The name is cut, because some form builders use the whole question as the name.
        joined.setdefault(name[:_MAX_NAME], []).append(value)
    check_count(len(joined))
    return {name: bounded(", ".join(filter(None, values))) for name, values in joined.items()}


def _decoded(pairs: list[tuple[bytes, bytes]], content_type: str) -> list[tuple[str, str]]:
    """Names and values in the encoding that the browser used."""
    charset = dict(pairs).get(b"_charset_", b"").decode("latin-1").strip().lower()
    _, _, stated = content_type.lower().partition("charset=")
    charset = charset or stated.split(";", 1)[0].strip(' "')
    western = charset in ("iso-8859-1", "latin1", "windows-1252")
    for encoding in ("windows-1252",) if western else ("utf-8", "windows-1252"):
        try:
            return [(name.decode(encoding), value.decode(encoding)) for name, value in pairs]
        except UnicodeDecodeError:
            continue
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]
