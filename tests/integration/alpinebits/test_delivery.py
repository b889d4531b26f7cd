from __future__ import annotations

from pathlib import Path

from tests.integration.alpinebits.hub import open_hub

H1, U1 = 1, 1


async def test_guest_request_is_delivered_until_it_is_acknowledged(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert await hub.read("u1", "H1") == []
        hub.add(H1, "a1")
        hub.add(H1, "a2", "reservation", total=1, currency="EUR", room_type="DZ")
        expected = [("14", "a1", "Requested"), ("14", "a2", "Reserved")]
        assert await hub.read_all("u1", "H1") == expected
        assert await hub.read_all("u1", "H1", "2020-10") == expected
        assert await hub.acknowledge("u1", (14, "a1")) == []
        assert await hub.read("u1", "H1") == ["a2"]
        assert await hub.acknowledge("u1", (14, "a2"), (14, "a1")) == []
        assert await hub.read("u1", "H1") == []
