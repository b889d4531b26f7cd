"""Where guest requests may be pushed."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.client import AlpineBitsClient, Login
from alpinehub.alpinebits_client.http import HttpClient
from alpinehub.hotels import Unusable
from alpinehub.push.target import allowed_addresses, check_url


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
    checked = check_url(url, private=private)
    assert allowed_addresses(checked, private=private)(ip_address(address)) is allowed


def test_password_is_in_no_text_of_a_client() -> None:
    login = Login(
        url=check_url("https://x/", private=False),
        user="hub",
        password="s3cret",
        protocol=PROTOCOLS["2024-10"],
    )
    assert "s3cret" not in repr(AlpineBitsClient(login=login, http=HttpClient()))
