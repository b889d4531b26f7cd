"""Where guest requests may be pushed."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.client import Login
from alpinehub.hotels import Unusable
from alpinehub.push.target import Target, check_url


def target(url: str, *, private: bool) -> Target:
    login = Login(
        url=check_url(url, private=private),
        user="hub",
        password="s3cret",
        protocol=PROTOCOLS["2024-10"],
    )
    return Target(login=login, gzip=False)


def test_url_without_tls_is_refused_unless_it_stays_at_home() -> None:
    with pytest.raises(Unusable, match="https:// only"):
        check_url("http://pms.example/", private=False)
    assert not check_url("http://pms.example/", private=True).secure


@pytest.mark.parametrize(
    ("url", "private", "address", "allowed"),
    [
        ("https://x/", False, "8.8.8.8", True),
        ("https://x/", False, "10.0.0.1", False),
        ("https://x/", False, "127.0.0.1", False),
        ("https://x/", False, "::ffff:127.0.0.1", False),
        ("https://x/", False, "169.254.169.254", False),
        ("https://x/", True, "8.8.8.8", True),
        ("https://x/", True, "10.0.0.1", True),
        ("https://x/", True, "169.254.169.254", False),
        ("http://x/", True, "10.0.0.1", True),
        ("http://x/", True, "::1", True),
        ("http://x/", True, "8.8.8.8", False),
    ],
)
def test_address_is_called_where_it_may_be(
    url: str, private: bool, address: str, allowed: bool
) -> None:
    http = target(url, private=private).client(private=private).http
    assert http.allowed(ip_address(address)) is allowed


def test_password_is_in_no_text_of_a_target() -> None:
    made = target("https://x/", private=False)
    assert "s3cret" not in repr(made) + repr(made.client(private=False))
