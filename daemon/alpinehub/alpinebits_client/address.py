"""URLs of servers, and the rules for the IP addresses that may be called."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from msgspec import Struct

Address = IPv4Address | IPv6Address
#: Whether an address may be called.
Allowed = Callable[[Address], bool]

_NAT64 = IPv6Network("64:ff9b::/96")
#: NAT64 of a network's own choice (RFC 8215): where it leads is not known.
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_PORTS = {"https": 443, "http": 80}


class InvalidUrl(ValueError):
    """The URL cannot be one of an AlpineBits server; the text says why, for people."""


class Url(Struct, frozen=True, kw_only=True):
    """An http or https URL."""

    secure: bool
    host: str
    port: int
    #: With the query.
    path: str

    @property
    def authority(self) -> str:
        """The header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = _PORTS["https" if self.secure else "http"]
        return host if self.port == usual else f"{host}:{self.port}"

    @property
    def redacted(self) -> str:
        """Without the query, which may hold a key: for output and logs."""
        path, mark, _ = self.path.partition("?")
        return f"http{'s' if self.secure else ''}://{self.authority}{path}{mark and '?…'}"

    def __str__(self) -> str:
        return f"http{'s' if self.secure else ''}://{self.authority}{self.path}"


def parse_url(text: str) -> Url:
    """Take a URL apart. Raises: InvalidUrl."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidUrl("a URL has visible ASCII characters only")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidUrl("the URL cannot be read") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise InvalidUrl("a URL begins with https:// (or http://) and a name")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrl("user and password do not belong into the URL: it is shown and logged")
    path = parts.path or "/"
    return Url(
        secure=parts.scheme == "https",
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path=f"{path}?{parts.query}" if parts.query else path,
    )


def any_address(address: Address) -> bool:
    """For a caller who chooses the address: every address."""
    return True


def is_public(address: Address) -> bool:
    """Whether it is an address on the internet, not in this machine's network."""
    address = _plain(address)
    if isinstance(address, IPv6Address) and (inner := _translated(address)) is not None:
        address = inner
    return address.is_global and not address.is_multicast and not address.is_reserved


def _translated(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address to which a gateway sends what is for this one: 6to4 (RFC 3056) and NAT64
    (RFC 6052).
    """
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def is_public_or_private(address: Address) -> bool:
    """Whether it is on the internet, of this machine or in a private network. Not link-local: there
    clouds serve the credentials of their machines.
    """
    address = _plain(address)
    return is_public(address) or is_local(address)


def is_local(address: Address) -> bool:
    """Whether it is of this machine or in a private network. Not an address that a gateway
    translates, which Python calls private from 3.12.4 on.
    """
    address = _plain(address)
    if isinstance(address, IPv6Address):
        if _translated(address) is not None or address in _LOCAL_NAT64:
            return False
    unusable = address.is_link_local or address.is_unspecified or address.is_multicast
    return (address.is_loopback or address.is_private) and not unusable


def _plain(address: Address) -> Address:
    """The IPv4 address in an IPv6 one that means it."""
    return getattr(address, "ipv4_mapped", None) or address


def read_address(text: str) -> Address:
    """An address as the resolver gives it, perhaps with the zone of an interface."""
    return ip_address(text.partition("%")[0])
