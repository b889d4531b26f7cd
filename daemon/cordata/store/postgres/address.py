"""The address of the server: the urls of `[store]` as libpq's parameters, with our defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cordata.config.sections import StoreConfig
from cordata.errors import ConfigError

SCHEMES = ("postgresql://", "postgres://")
#: An idle connection notices within about 15 s that the server is gone.
_DEFAULTS: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "fallback_application_name": "cordata",
}
#: Part of libpq's error -> our text. (These texts are English in every locale, both in psycopg's
#: wheels and in the C locale.)
_REASONS = {
    "percent-encoded spaces": "it contains a space: write %20, or remove it",
    "percent-encoded": "a % without two hex digits after it",
    "query parameter": "it has a parameter that libpq does not know",
    "key/value separator": "a parameter is not NAME=VALUE",
    "]": "an address in brackets has no end",
}
_SHAPE = 'like "postgresql://user@host/database"; several hosts with commas between them'


@dataclass(frozen=True, slots=True)
class Address:
    """libpq's parameters for one kind of connection. Never printed: they may contain a password."""

    params: dict[str, Any]
    #: Whether a proxy may be in between, which gives us a session only for one transaction.
    proxied: bool

    def __repr__(self) -> str:
        return f"Address(proxied={self.proxied})"


def addresses(config: StoreConfig, password: str | None) -> tuple[Address, Address]:
    """The addresses for transactions and for sessions. Raises: ConfigError."""
    session = config.session_url or config.url
    return (
        Address(_params(config.url, "url", password, config), bool(config.session_url)),
        Address(_params(session, "session_url", password, config), proxied=False),
    )


def check(config: StoreConfig) -> None:
    """Raises: ConfigError with every problem of the urls."""
    problems: list[str] = []
    for key in ("url", "session_url"):
        if url := getattr(config, key):
            try:
                _params(url, key, None, config)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(*problems, hint=_SHAPE)


def _reason(text: str) -> str:
    """The problem that libpq found, without quoting the url, which may contain a password."""
    return next((reason for part, reason in _REASONS.items() if part in text), "it cannot be read")


def _problem(given: dict[str, Any]) -> str | None:
    """The problem of a url that libpq can read, or None."""
    if "password" in given:
        return (
            "contains a password, which `config show` would print: put it into the credential"
            " store-password"
        )
    ports = str(given.get("port", "")).split(",")
    if not all(not port or (port.isdecimal() and 0 < int(port[:9]) < 65_536) for port in ports):
        return "has a port that is not a number from 1 to 65535"
    hosts = f"{given.get('host', '')}{given.get('hostaddr', '')}"
    # For libpq, a / in a password ends the host, and the @ is then part of the database's name.
    if "@" in str(given.get("dbname", "")) or any(c.isspace() for c in hosts):
        return "has an @ after the end of the host, or a space in a host"
    try:
        for host in str(given.get("host", "")).split(","):
            if not host.startswith(("/", "@")):  # else the directory of a socket
                host.encode("idna")  # as the resolver does
    except UnicodeError:
        return "has an invalid host name: each part between dots needs 1 to 63 characters"
    return None


def _params(url: str, key: str, password: str | None, config: StoreConfig) -> dict[str, Any]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    if "\0" in url:  # libpq would ignore the rest
        raise ConfigError(f"[store] {key} has a NUL character")
    if not url.startswith(SCHEMES):
        raise ConfigError(f"[store] {key} is not the address of a PostgreSQL server", hint=_SHAPE)
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
    except (psycopg.Error, ValueError) as error:
        raise ConfigError(f"[store] {key}: {_reason(str(error))}", hint=_SHAPE) from None
    if (wrong := _problem(given)) is not None:
        raise ConfigError(f"[store] {key} {wrong}", hint=_SHAPE)
    params = {**_DEFAULTS, **given}
    # libpq accepts whole seconds, and takes 1 for 2.
    params.setdefault("connect_timeout", max(2, round(config.connect_timeout_s)))
    params["client_encoding"] = "UTF8"
    if password is not None:
        params["password"] = password
    if "," in (given.get("host") or given.get("hostaddr") or ""):
        params.setdefault("target_session_attrs", "read-write")
    return params
