"""What a browser posts of a plain HTML form: application/x-www-form-urlencoded or multipart.

The encoding is what the browser says, else UTF-8, else the one that old pages are in.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from alpinehub.webhooks.sheet import MAX_VALUE, Answer, Sheet, Unreadable, check_count
from alpinehub.webhooks.values import line

_MAX_NAME = 128
_MAX_PARTS = 1000
_UTM = ("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_id")


def kind_of(content_type: str) -> str:
    """The media type of a body, in lower case."""
    return content_type.split(";", 1)[0].strip().lower()


def read(body: bytes, content_type: str, honeypot: str) -> Sheet:
    """The submission in a body. Raises: Unreadable.

    `honeypot`: a field that people do not see; what fills it is no guest.
    """
    if kind_of(content_type) == "multipart/form-data":
        pairs = _multipart(body, content_type)
    else:
        pairs = _urlencoded(body, content_type)
    joined: dict[str, list[str]] = {}
    for name, value in pairs:
        if name:  # as long as some form builders make it of the question
            joined.setdefault(name[:_MAX_NAME], []).append(value)
    check_count(len(joined))
    said = {name: ", ".join(filter(None, values))[:MAX_VALUE] for name, values in joined.items()}
    trapped = bool(honeypot) and bool(said.pop(honeypot, "").strip())
    return Sheet(
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
    # Imported here: a worker that serves no such form does not carry it.
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= 256:
        raise Unreadable("no_boundary")
    parts = _Parts()
    names = ("part_begin", "header_field", "header_value", "header_end", "part_data", "part_end")
    callbacks = {f"on_{name}": getattr(parts, f"on_{name}") for name in (*names, "end")}
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise Unreadable("not_a_form") from None
    if not parts.complete:
        raise Unreadable("cut_off")
    return _decoded(parts.fields, content_type)


class _Parts:
    """Collects the fields of one multipart body from the parser's callbacks; files are left out."""

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.complete = False
        self._parts = 0
        self._field = self._value = self._disposition = b""
        self._data: list[bytes] = []

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise Unreadable("too_many_fields")
        self._disposition = b""
        self._data = []

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def on_part_end(self) -> None:
        from python_multipart.multipart import parse_options_header

        _, options = parse_options_header(self._disposition)
        if b"name" in options and b"filename" not in options:
            self.fields.append((options[b"name"], b"".join(self._data)))

    def on_end(self) -> None:
        self.complete = True


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
