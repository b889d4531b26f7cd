"""The effective configuration as TOML: defaults marked, secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cordata.config.reader import Document, is_section, key_of
from cordata.config.sections import Config

_SECRET_KEY = re.compile(r"(^|_)(password|secret|token|key|passphrase)s?$", re.IGNORECASE)
#: A URL that has a secret only as its password; its parameters are checked separately.
_HOST = r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+(?:%\w+)?\])?(?::\d{1,5})?"
_PLAIN_URL = re.compile(
    r"(?P<where>[a-z][a-z0-9+]*://(?:[\w.+-]*(?P<password>:[^/@?#,\s]*)?@)?"
    rf"{_HOST}(?:,{_HOST})*(?:/[^@?#\s]*)?)(?:\?(?P<query>.*))?",
    re.DOTALL,
)
#: Common parameters of libpq and Redis that are not secrets.
_PLAIN_PARAMETERS = frozenset(
    (
        *("host", "hostaddr", "port", "user", "dbname", "passfile", "service", "options"),
        *("application_name", "connect_timeout", "target_session_attrs", "load_balance_hosts"),
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation", "sslsni"),
        *("channel_binding", "gssencmode", "require_auth", "tcp_user_timeout", "keepalives"),
        *("keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("ssl_min_protocol_version", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"),
    )
)
_SCHEMES = frozenset(
    (
        *("postgresql", "postgres", "redis", "rediss", "redis+sentinel", "rediss+sentinel"),
        *("sqlite", "http", "https"),
    )
)
_NO_URL = ("", "sqlite:", "store:")
_MASK = "********"


def lines(config: Config, document: Document, credentials: Sequence[str]) -> Iterator[str]:
    """The lines of a valid TOML file; `credentials` are the names of existing credentials."""
    yield f"# {document.path or 'no file: defaults'}"
    yield from (f"# {path}" for path in document.files if path != document.path)
    for declaration in fields(Config):
        section = getattr(config, declaration.name)
        if is_section(type(section)):
            yield from _section(declaration.name, section, document)
    for instance, worker in sorted(config.workers.items()):
        yield from _section(f"worker.{instance}", worker, document, only_given=True)
    for name, pool in sorted(config.pools.items()):
        yield from _section(f"pool.{name}", pool, document, only_given=True)
    for name, section in config.settings.items():
        yield from _section(name, section, document)
    yield ""
    yield f"# credentials in {config.paths.credentials}:"
    yield from (f"#   {name} = {_MASK}" for name in credentials)


def _section(
    name: str, section: Any, document: Document, *, only_given: bool = False
) -> Iterator[str]:
    yield ""
    yield f"[{name}]"
    nested = []
    table = document.table(name)
    given = set(table) if isinstance(table, Mapping) else set()
    for declaration in fields(section):
        key = key_of(declaration.name)
        value = getattr(section, declaration.name)
        if is_section(type(value)):
            nested.append((key, value))
            continue
        if value is None:
            yield f"# {key} is not set"
        elif key in given or not only_given:
            shown = _shown(key, value)
            yield f"{key} = {literal(shown)}" + ("" if key in given else "  # default")
    for key, value in nested:
        yield from _section(f"{name}.{key}", value, document)


def _shown(key: str, value: object) -> object:
    if _SECRET_KEY.search(key) and value:
        return _MASK
    if key.endswith("url") and isinstance(value, str) and value not in _NO_URL:
        return shown_url(value)
    return value


def shown_url(url: str) -> str:
    """A URL with its password masked. Of an unusual URL only the scheme is shown, since the
    password may be anywhere in it.
    """
    if url.startswith("sqlite:///"):
        return url
    match = _PLAIN_URL.fullmatch(url)
    query = match["query"] if match else None
    names = {part.partition("=")[0] for part in query.split("&")} if query else set()
    if match is None or not names <= _PLAIN_PARAMETERS:
        scheme, colon, _ = url.partition("://")
        return f"{scheme}{colon}{_MASK}" if colon and scheme in _SCHEMES else _MASK
    where = match["where"]
    if match["password"]:
        where = where.replace(f"{match['password']}@", f":{_MASK}@", 1)
    return where if query is None else f"{where}?{query}"


def literal(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path):
        text = str(value)
        if "://" in text:
            words = re.split(r"(\s+)", text)  # keeps the spaces between the words
            text = "".join(shown_url(word) if "://" in word else word for word in words)
        # A basic string of TOML is a JSON string, except that TOML does not allow DEL.
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(k)} = {literal(v)}" for k, v in value.items()) + "}"
    return str(value)
