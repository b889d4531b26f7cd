"""Whom to believe about the client."""

from __future__ import annotations

import pytest

from cordata.http.proxy import Peer, TrustedProxies

LOCAL = Peer(client=("10.0.0.9", 1), server=("10.0.0.1", 80))
UNIX = Peer(client=None, server=("/run/x", None))
PROXIES = TrustedProxies(("unix", "10.0.0.0/8", "2001:db8::/32"))


def forwarded(
    peer: Peer, proxies: TrustedProxies = PROXIES, **headers: str
) -> tuple[object, str, bytes | None]:
    names = {
        "for_": b"x-forwarded-for",
        "proto": b"x-forwarded-proto",
        "host": b"x-forwarded-host",
    }
    return proxies.forwarded(peer, {names[key]: v.encode() for key, v in headers.items()})


def test_proxies_contain_what_is_configured() -> None:
    proxies = TrustedProxies(("unix", "10.0.0.0/8", "::1"))
    assert None in proxies
    assert "10.1.2.3" in proxies
    assert "::ffff:10.1.2.3" in proxies
    assert "::1" in proxies
    assert "11.0.0.1" not in proxies
    assert "rubbish" not in proxies
    assert None not in TrustedProxies(())


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("1.1.1.1, 203.0.113.7, 10.0.0.2", "203.0.113.7"),  # the client made up 1.1.1.1
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("rubbish, 203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, rubbish", "10.0.0.9"),
        ("203.0.113.7:5678", "203.0.113.7"),
        ("[2001:470::7]:99", "2001:470::7"),
        ("2001:470::7", "2001:470::7"),
        ("", "10.0.0.9"),
        (", ,", "10.0.0.9"),
        (",".join(["10.0.0.2"] * 50), "10.0.0.2"),
    ],
)
def test_client_is_the_first_that_is_not_trusted(chain: str, client: str) -> None:
    found = forwarded(LOCAL, for_=chain)[0]
    assert isinstance(found, tuple)
    assert found[0] == client


def test_client_of_a_unix_socket_is_what_the_proxy_says() -> None:
    assert forwarded(UNIX, for_="203.0.113.7")[0] == ("203.0.113.7", 0)
    assert forwarded(UNIX)[0] is None


def test_headers_of_a_peer_that_is_not_trusted_are_ignored() -> None:
    proxies = TrustedProxies(("10.1.0.0/16",))
    for peer in (LOCAL, UNIX):
        found = forwarded(peer, proxies, for_="203.0.113.7", proto="https", host="evil.example")
        assert found == (peer.client, "http", None)


def test_scheme_and_host_are_the_nearest_proxys() -> None:
    assert forwarded(UNIX, proto="http, HTTPS", host="x, hub.example:8443")[1:] == (
        "https",
        b"hub.example:8443",
    )


def test_scheme_and_host_are_not_believed_when_malformed() -> None:
    assert forwarded(UNIX, proto="javascript", host="a/b")[1:] == ("http", None)
    assert forwarded(UNIX, host="x" * 300 + " ")[2] == b"x" * 300
