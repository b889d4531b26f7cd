"""What a browser gets after a form: the page the hotel chose, or one of ours that says thanks.

Nothing of what was sent is on it, and a robot that fell into the honeypot gets the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from alpinehub.party import Source
from alpinehub.webhooks.endpoint import Reply

_WORDS = {
    "de": ("Danke", "Ihre Anfrage ist angekommen. Wir melden uns bald bei Ihnen."),
    "it": ("Grazie", "La sua richiesta è arrivata. Le risponderemo al più presto."),
    "fr": ("Merci", "Votre demande est arrivée. Nous vous répondrons bientôt."),
    "en": ("Thank you", "Your request has arrived. We will be in touch soon."),
}
_PAGE = """<!DOCTYPE html>
<html lang="{language}">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p><p>{hotel}</p></body>
</html>
"""
#: A script of the hotel's page may read that it worked.
_ANY_ORIGIN = (b"access-control-allow-origin", b"*")
_HEADERS = (
    _ANY_ORIGIN,
    (b"content-security-policy", b"default-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


def thanks(source: Source, headers: Mapping[bytes, bytes]) -> Reply:
    """303 to the source's own page; else 200 with JSON for a script, with HTML for a browser."""
    if source.options.redirect:
        location = (b"location", source.options.redirect.encode())
        return Reply(303, headers=(location, _ANY_ORIGIN))
    accepted = headers.get(b"accept", b"").decode("latin-1").lower()
    if "application/json" in accepted and "text/html" not in accepted:
        return Reply(200, b'{"status":"received"}', headers=(_ANY_ORIGIN,))
    spoken = headers.get(b"accept-language", b"").decode("latin-1").lower()
    wanted = [tag.strip()[:2] for tag in spoken.split(",")[:10]] + [source.hotel.language]
    language = next((one for one in wanted if one in _WORDS), "en")
    title, text = _WORDS[language]
    page = _PAGE.format(language=language, title=title, text=text, hotel=escape(source.hotel.name))
    return Reply(200, page.encode(), b"text/html; charset=utf-8", _HEADERS)
