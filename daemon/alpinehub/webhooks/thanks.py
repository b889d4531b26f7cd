"""The answer to a browser after a form: a redirect to the hotel's page, a page with thanks, or a
page with the reason why the form was not accepted.

It repeats nothing of the submission, and a robot that filled in the honeypot gets the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from alpinehub.asgi import Reply
from alpinehub.models import Source
from alpinehub.webhooks.endpoint import HTML, WebhookError

_WORDS = {
    "de": ("Danke", "Ihre Anfrage ist angekommen. Wir melden uns bald bei Ihnen."),
    "it": ("Grazie", "La sua richiesta è arrivata. Le risponderemo al più presto."),
    "fr": ("Merci", "Votre demande est arrivée. Nous vous répondrons bientôt."),
    "en": ("Thank you", "Your request has arrived. We will be in touch soon."),
}
#: 429: too many submissions from one address, or to one form.
_WAIT = {
    "de": (
        "Bitte etwas später noch einmal",
        "Ihre Anfrage wurde nicht gesendet: Im Moment kommen zu viele. Gehen Sie zurück und senden "
        "Sie sie in einer Minute noch einmal, oder rufen Sie uns an.",
    ),
    "it": (
        "Riprovi tra poco",
        "La sua richiesta non è stata inviata: in questo momento ne arrivano troppe. Torni "
        "indietro e la invii di nuovo tra un minuto, oppure ci telefoni.",
    ),
    "fr": (
        "Veuillez réessayer plus tard",
        "Votre demande n'a pas été envoyée : il en arrive trop en ce moment. Revenez en arrière et "
        "renvoyez-la dans une minute, ou appelez-nous.",
    ),
    "en": (
        "Please try again later",
        "Your request was not sent: too many arrive at the moment. Go back and send it again in a "
        "minute, or call us.",
    ),
}
#: 403: a proof of work is missing, or was used before.
_AGAIN = {
    "de": (
        "Bitte noch einmal senden",
        "Ihre Anfrage wurde nicht gesendet. Gehen Sie zurück, laden Sie die Seite neu und senden "
        "Sie sie noch einmal; JavaScript muss erlaubt sein. Oder rufen Sie uns an.",
    ),
    "it": (
        "Invii di nuovo la richiesta",
        "La sua richiesta non è stata inviata. Torni indietro, ricarichi la pagina e la invii di "
        "nuovo; JavaScript deve essere attivo. Oppure ci telefoni.",
    ),
    "fr": (
        "Veuillez renvoyer votre demande",
        "Votre demande n'a pas été envoyée. Revenez en arrière, rechargez la page et renvoyez-la ; "
        "JavaScript doit être activé. Ou appelez-nous.",
    ),
    "en": (
        "Please send it again",
        "Your request was not sent. Go back, load the page again and send it once more; JavaScript "
        "has to be on. Or call us.",
    ),
}
#: 413.
_TOO_LARGE = {
    "de": (
        "Ihre Anfrage ist zu groß",
        "Ihre Anfrage wurde nicht gesendet. Gehen Sie zurück, kürzen Sie den Text, fügen Sie keine "
        "Dateien an und senden Sie sie noch einmal, oder rufen Sie uns an.",
    ),
    "it": (
        "La sua richiesta è troppo grande",
        "La sua richiesta non è stata inviata. Torni indietro, accorci il testo, non alleghi file "
        "e la invii di nuovo, oppure ci telefoni.",
    ),
    "fr": (
        "Votre demande est trop volumineuse",
        "Votre demande n'a pas été envoyée. Revenez en arrière, raccourcissez le texte, ne joignez "
        "aucun fichier et renvoyez-la, ou appelez-nous.",
    ),
    "en": (
        "Your request is too large",
        "Your request was not sent. Go back, shorten the text, attach no files and send it again, "
        "or call us.",
    ),
}
#: Any other error: the hub cannot store it now (503), or the form is wrong (400, 415).
_FAILED = {
    "de": (
        "Bitte noch einmal senden",
        "Ihre Anfrage konnte nicht angenommen werden. Gehen Sie zurück und senden Sie sie in einer "
        "Minute noch einmal, oder rufen Sie uns an.",
    ),
    "it": (
        "Invii di nuovo la richiesta",
        "Non è stato possibile accettare la sua richiesta. Torni indietro e la invii di nuovo tra "
        "un minuto, oppure ci telefoni.",
    ),
    "fr": (
        "Veuillez renvoyer votre demande",
        "Votre demande n'a pas pu être acceptée. Revenez en arrière et renvoyez-la dans une "
        "minute, ou appelez-nous.",
    ),
    "en": (
        "Please send it again",
        "Your request could not be accepted. Go back and send it again in a minute, or call us.",
    ),
}
_REASONS = {429: _WAIT, 403: _AGAIN, 413: _TOO_LARGE}
_PAGE = """<!DOCTYPE html>
<html lang="{language}">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p><p>{hotel}</p></body>
</html>
"""
#: Lets a script of the hotel's page read the answer.
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
    if _is_script(headers):
        return Reply(200, b'{"status":"received"}', headers=(_ANY_ORIGIN,))
    return Reply(200, _page(source, headers, _WORDS), HTML, _HEADERS)


def not_taken(error: WebhookError, source: Source, headers: Mapping[bytes, bytes]) -> WebhookError:
    """The error with a page for the guest, unless a script asked."""
    if _is_script(headers):
        error.headers += (_ANY_ORIGIN,)
    else:
        error.page = _page(source, headers, _REASONS.get(error.status, _FAILED))
        error.headers += _HEADERS
    return error


def _is_script(headers: Mapping[bytes, bytes]) -> bool:
    accepted = headers.get(b"accept", b"").decode("latin-1").lower()
    return "application/json" in accepted and "text/html" not in accepted


def _page(
    source: Source, headers: Mapping[bytes, bytes], words: Mapping[str, tuple[str, str]]
) -> bytes:
    spoken = headers.get(b"accept-language", b"").decode("latin-1").lower()
    wanted = [tag.strip()[:2] for tag in spoken.split(",")[:10]] + [source.hotel.language]
    language = next((one for one in wanted if one in words), "en")
    title, text = words[language]
    page = _PAGE.format(language=language, title=title, text=text, hotel=escape(source.hotel.name))
    return page.encode()
