"""URLs, and which addresses may be called."""

from __future__ import annotations

import pytest

from alpinehub.alpinebits_client.address import (
    InvalidUrl,
    is_local,
    is_public,
    is_public_or_private,
    parse_url,
    read_address,
)


@pytest.mark.parametrize(
    ("written", "authority", "path"),
    [
        ("https://hub.example/api?x=1", "hub.example", "/api?x=1"),
        ("https://hub.example", "hub.example", "/"),
        ("http://[::1]:8080/a", "[::1]:8080", "/a"),
        ("https://HUB.example:443/", "hub.example", "/"),
        ("http://x:443/", "x:443", "/"),
    ],
)
def test_url_is_taken_apart(written: str, authority: str, path: str) -> None:
    url = parse_url(written)
    assert (url.authority, url.path) == (authority, path)
    assert parse_url(str(url)) == url


def test_url_is_shown_without_its_query() -> None:
    assert parse_url("https://x/a?key=s3cret").redacted == "https://x/a?…"
    assert parse_url("https://x/a").redacted == "https://x/a"


@pytest.mark.parametrize(
    "written",
    [
        "", "hub.example", "ftp://x/", "file:///etc/passwd", "https://", "https://u@x/",
        "https://u:p@x/", "https://x:99999/", "https://x/a b", "https://x/\r\nHost: y",
        "https://ü.example/", "https://[::1/",
    ],
)  # fmt: skip
def test_url_of_no_server_is_refused(written: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url(written)


@pytest.mark.parametrize(
    ("written", "public", "near", "local"),
    [
        ("8.8.8.8", True, True, False),
        ("2001:4860:4860::8888", True, True, False),
        ("127.0.0.1", False, True, True),
        ("::1", False, True, True),
        ("10.1.2.3", False, True, True),
        ("fd00::1", False, True, True),
        ("::ffff:10.0.0.1", False, True, True),
        ("::ffff:8.8.8.8", True, True, False),
        ("169.254.169.254", False, False, False),
        ("::ffff:169.254.169.254", False, False, False),
        ("fe80::1%eth0", False, False, False),
        ("0.0.0.0", False, False, False),
        ("::", False, False, False),
        ("224.0.0.1", False, False, False),
        ("ff02::1", False, False, False),
        ("100.64.0.1", False, False, False),
        # What a gateway translates leads where the IPv4 address inside leads.
        ("64:ff9b::8.8.8.8", True, True, False),
        ("64:ff9b::10.0.0.1", False, False, False),
        ("64:ff9b::169.254.169.254", False, False, False),
        ("64:ff9b:1::8.8.8.8", False, False, False),
        ("2002:808:808::1", True, True, False),
        ("2002:a00:1::1", False, False, False),
        ("2002:7f00:1::1", False, False, False),
        ("2002:a9fe:a9fe::", False, False, False),
        ("::10.0.0.1", False, False, False),
    ],
)
def test_address_is_judged_by_where_it_leads(
    written: str, public: bool, near: bool, local: bool
) -> None:
    address = read_address(written)
    assert (is_public(address), is_public_or_private(address), is_local(address)) == (
        public,
        near,
        local,
    )
