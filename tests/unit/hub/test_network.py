"""What counts as one client where something is limited by address."""

from __future__ import annotations

import pytest

from alpinehub.login import is_loopback, network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),  # as a socket for both families has it
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("unix", "unix"),
    ],
)
def test_network_is_the_address_or_its_64(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.mark.parametrize(
    ("address", "is_it"),
    [
        ("127.0.0.2", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.7", False),
        ("unix", False),
    ],
)
def test_loopback_is_that_of_both_families(address: str, is_it: bool) -> None:
    assert is_loopback(address) is is_it
