"""The server that is checked, and requests to it, well-formed and malformed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from alpinehub.alpinebits import handshake_json
from alpinehub.alpinebits.action import HANDSHAKE, READ
from alpinehub.alpinebits.handshake_json import NoCapabilities
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.client import AlpineBitsClient
from alpinehub.alpinebits_client.http import HttpResponse
from alpinehub.alpinebits_client.message import HotelName
from alpinehub.alpinebits_client.offer import offer
from alpinehub.alpinebits_client.reply import Reply, read_reply

#: A version that does not exist, and a code that no hotel has.
NO_VERSION, NO_HOTEL = "1999-01", "NO-SUCH-HOTEL-X"
#: Headers to leave out are None.
Headers = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A server, and the protocol version in which it is called."""

    client: AlpineBitsClient
    #: The hotel whose guest requests are read; "": none is known.
    hotel: str = ""
    #: A hotel of another account, if known.
    foreign_hotel: str = ""
    #: The versions that it serves, oldest first.
    protocols: Mapping[str, Protocol] = field(default_factory=dict)

    @property
    def protocol(self) -> Protocol:
        """The protocol version of the requests."""
        return self.client.login.protocol

    def speaking(self, version: str) -> Peer:
        """The same server in another protocol version."""
        login = replace(self.client.login, protocol=PROTOCOLS[version])
        return replace(self, client=AlpineBitsClient(login=login, http=self.client.http))

    async def call(
        self,
        action: str,
        document: bytes | None = None,
        headers: Headers | None = None,
        *,
        gzip: bool = False,
    ) -> HttpResponse:
        """Send a well-formed request, with these headers instead of its own."""
        given, body = self.client.request(action, document, gzip=gzip)
        return await self.post(body, {**given, **(headers or {})})

    async def post(self, body: bytes, headers: Headers, *, method: str = "POST") -> HttpResponse:
        """Send any request; a header of None is left out."""
        login = self.client.login
        merged = {**login.headers, **headers}
        kept = {name: value for name, value in merged.items() if value is not None}
        return await self.client.http.call(login.url, kept, body, method=method)

    async def harmless(self, headers: Headers | None = None) -> HttpResponse:
        """Send a request that changes nothing, and that each server of this version must answer."""
        if self.protocol.housekeeping:
            return await self.call("getVersion", headers=headers)
        return await self.call(HANDSHAKE, message.ping(offer()), headers)

    async def handshake(self, echo: str) -> Reply:
        """The reply to a handshake with this EchoData."""
        return self.read(await self.call(HANDSHAKE, message.ping(echo)), "OTA_PingRS")

    async def requests(self, since: str = "", hotel: str | None = None) -> Reply:
        """The guest requests of the hotel, or of another one."""
        code = self.hotel if hotel is None else hotel
        document = message.read_requests(HotelName(code=code), since)
        return self.read(await self.call(READ, document), "OTA_ResRetrieveRS")

    def read(self, answer: HttpResponse, expected: str) -> Reply:
        """The reply in an answer; `expected` is the name of its root element."""
        return read_reply(answer, expected, self.protocol)


async def served_by(peer: Peer) -> dict[str, Protocol]:
    """The versions that a server serves, oldest first. Raises: RequestFailed.

    getVersion asks for 2017-10; the other versions are those of a handshake.
    """
    found: set[str] = set()
    for name, protocol in PROTOCOLS.items():
        one = peer.speaking(name)
        if protocol.housekeeping:
            answer = await one.harmless()
            if answer.status == 200 and answer.body.startswith(b"OK:"):
                found.add(name)
            continue
        for remark in (await one.handshake(offer())).remarks:
            try:
                found |= handshake_json.decode(remark.text).keys()
            except NoCapabilities:
                continue
    return {name: protocol for name, protocol in PROTOCOLS.items() if name in found}
