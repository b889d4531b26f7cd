"""The peer of a connection, and trust in its X-Forwarded-* headers."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
#: Entries of a proxy chain that are read, at most.
_MAX_HOPS = 32
#: Of a request that no trusted proxy forwards: this server has no TLS.
SCHEME = "http"
#: Bytes of these headers up to which their meaning is cached: parsing addresses takes 8 us.
_MAX_CACHED = 200
#: (client, scheme, host or None)
Forwarded = tuple[tuple[str, int] | None, str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Both ends of a connection, for `scope` and the log."""

    #: (address, port) of the client; None on a unix socket.
    client: tuple[str, int] | None
    #: (address, port) of the server's end, (path, None) on a unix socket.
    server: tuple[str, int | None] | None

    @property
    def text(self) -> str:
        """The client's address for the log; `unix` when there is none."""
        return self.client[0] if self.client else "unix"


class TrustedProxies:
    """The peers of `[http] trusted_proxies`, which config.rules has checked."""

    def __init__(self, names: Sequence[str]) -> None:
        self._unix = "unix" in names
        self._networks = [ipaddress.ip_network(one, strict=False) for one in names if one != "unix"]
        self._cached = lru_cache(maxsize=1024)(self._resolve)

    def __contains__(self, address: str | None) -> bool:
        """Whether the peer at an address (None: a unix socket) is trusted."""
        if address is None:
            return self._unix
        parsed = _parse_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def forwarded(self, peer: Peer, headers: Mapping[bytes, bytes]) -> Forwarded:
        """Client, scheme and host of the request, by its headers if the peer is trusted.

        `headers` has repeated fields joined with ", ". The client is the first address from the
        right that is not trusted itself. Malformed values are ignored.
        """
        chain = headers.get(b"x-forwarded-for", b"")
        proto = headers.get(b"x-forwarded-proto", b"")
        host = headers.get(b"x-forwarded-host", b"")
        if len(chain) + len(proto) + len(host) > _MAX_CACHED:
            return self._resolve(peer, chain, proto, host)
        return self._cached(peer, chain, proto, host)

    def _resolve(self, peer: Peer, chain: bytes, proto: bytes, host: bytes) -> Forwarded:
        if (peer.client[0] if peer.client else None) not in self:
            return peer.client, SCHEME, None
        scheme, host = _last(proto).lower(), _last(host)
        return (
            self._client(peer.client, chain),
            scheme.decode() if scheme in (b"http", b"https") else SCHEME,
            host if _HOST.fullmatch(host) else None,
        )

    def _client(self, direct: tuple[str, int] | None, chain: bytes) -> tuple[str, int] | None:
        client = direct
        for item in reversed(chain.rsplit(b",", _MAX_HOPS)[-_MAX_HOPS:]):
            address = _parse_address(item.strip(b" \t").decode("latin-1"))
            if address is None:
                break
            client = (str(address), 0)
            if client[0] not in self:
                break
        return client


def peer_of(connection: socket.socket) -> Peer:
    """The peer of an accepted socket. Raises: OSError when it has already left."""
    if connection.family == socket.AF_UNIX:
        path = os.fsdecode(connection.getsockname())
        return Peer(client=None, server=(path, None))
    client = _without_mapping(*connection.getpeername()[:2])
    return Peer(client=client, server=_without_mapping(*connection.getsockname()[:2]))


def _without_mapping(address: str, port: int) -> tuple[str, int]:
    """The address with an IPv4-mapped IPv6 address (dual-stack socket) as IPv4."""
    return (address[7:] if address.startswith("::ffff:") and "." in address else address), port


def _last(value: bytes) -> bytes:
    """The entry that the nearest proxy wrote."""
    return value.rsplit(b",", 1)[-1].strip(b" \t")


def _parse_address(text: str) -> Address | None:
    """An address, with or without port or brackets; an IPv4-mapped one as IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
