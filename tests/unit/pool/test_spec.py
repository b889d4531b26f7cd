"""What a child is told survives the shared file."""

from __future__ import annotations

import pytest

from cordata.core.pool import page, spec
from cordata.errors import ProtocolError


def test_spec_comes_back_from_behind_the_page() -> None:
    told = spec.ChildSpec(
        worker="0",
        parent=7,
        socket="/run/pool.sock",
        path=("/a", "/b ü"),
        commands={"render": "shop.pdf:render"},
        inits=("shop.pdf:load",),
        max_frame_bytes=1024,
        max_calls=3,
        inv="0" * 32,
        spare=True,
        log_level="DEBUG",
    )
    data = spec.write(told)
    assert not page.read(bytearray(data)).busy
    assert spec.read(data) == told


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"worker":'])
def test_spec_refuses_what_is_none(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a child's spec"):
        spec.read(bytes(page.SIZE) + body)
