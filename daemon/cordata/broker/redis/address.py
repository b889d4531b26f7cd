"""The address in a `[broker] url`; passwords are credentials, never part of it.

redis://[USER@]HOST[:PORT]/DB
rediss://[USER@]HOST[:PORT]/DB?ssl_ca_certs=FILE                TLS
redis+sentinel://[USER@]HOST[:PORT],HOST[:PORT]/NAME/DB         the master that Sentinels name
rediss+sentinel://...                                           TLS to them and to the master
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from cordata.errors import ConfigError

_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
_PORT, _SENTINEL_PORT = 6379, 26379
#: Named as redis-py and others name them.
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_HINT = (
    "store:, redis://host:port/db, rediss://host:port/db, or"
    " redis+sentinel://host:port,host:port/NAME/db"
)

_HOST = re.compile(r"[\w.:%\[\]-]+")
_DATABASE = re.compile(r"[0-9]{1,9}")

Host = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """The address of the server, or of the Sentinels that name it."""

    #: The server; with a `service` the Sentinels.
    hosts: tuple[Host, ...]
    #: What the Sentinels call the master; "" without Sentinels.
    service: str = ""
    database: int = 0
    #: "": the default user.
    user: str = ""
    tls: bool = False
    #: CA certificates instead of the system's.
    ca: Path | None = None
    #: The client's own certificate and key.
    certificate: Path | None = None
    key: Path | None = None

    def __str__(self) -> str:
        where = ", ".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.service} of {where}" if self.service else where

    def check_files(self) -> None:
        """Check that the files for TLS can be used. Raises: ConfigError."""
        if not self.tls:
            return
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(str(file) for file in (self.ca, self.certificate, self.key) if file)
            text = error.strerror or type(error).__name__
            raise ConfigError(f"[broker] url: cannot use {files}: {text}") from error


def parse_url(url: str) -> RedisAddress:
    """The address in a `[broker] url`. Raises: ConfigError, whose text quotes no part of it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # an unclosed bracket, an invalid character; its text quotes the url
        raise ConfigError("[broker] url: cannot be read", hint=_HINT) from None
    if parts.scheme not in _SCHEMES:
        raise ConfigError("[broker] url is no broker", hint=_HINT)
    user, at, hosts = parts.netloc.rpartition("@")
    if ":" in user:
        raise ConfigError(
            "[broker] url: the password does not belong here",
            hint="put it into the credential redis-password",
        )
    sentinel = parts.scheme.endswith("+sentinel")
    path = [unquote(part) for part in parts.path.strip("/").split("/") if part]
    service = path.pop(0) if sentinel and path else ""
    if sentinel != bool(service):
        raise ConfigError("[broker] url: does not name the service of the Sentinels", hint=_HINT)
    files = _files(parts.query)
    return RedisAddress(
        hosts=_hosts(hosts, _SENTINEL_PORT if sentinel else _PORT, several=sentinel),
        service=service,
        database=_database(path),
        user=unquote(user) if at else "",
        tls=parts.scheme.startswith("rediss"),
        ca=files.get("ssl_ca_certs"),
        certificate=files.get("ssl_certfile"),
        key=files.get("ssl_keyfile"),
    )


def _hosts(text: str, default_port: int, *, several: bool) -> tuple[Host, ...]:
    names = text.split(",")
    if not all(names) or (len(names) > 1 and not several):
        raise ConfigError("[broker] url: needs a host", hint=_HINT)
    try:
        return tuple(_host(name, default_port) for name in names)
    except ValueError:
        raise ConfigError("[broker] url: a host is not HOST or HOST:PORT", hint=_HINT) from None


def _host(text: str, default_port: int) -> Host:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or not _HOST.fullmatch(text) or parts.port == 0:
        raise ValueError
    return parts.hostname, parts.port or default_port


def _database(path: list[str]) -> int:
    if not path:
        return 0
    if len(path) > 1 or not _DATABASE.fullmatch(path[0]):
        raise ConfigError("[broker] url: the database is a number", hint=_HINT)
    return int(path[0])


def _files(query: str) -> dict[str, Path]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    if not found.keys() <= set(_TLS_FILES):
        known = ", ".join(_TLS_FILES)
        raise ConfigError("[broker] url: has an unknown parameter", hint=f"known: {known}")
    if any("\0" in value for value in found.values()):
        raise ConfigError("[broker] url: has a NUL character")
    return {name: Path(value) for name, value in found.items()}
