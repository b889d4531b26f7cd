"""The HTTP reference names what the server and the hub really answer."""

from __future__ import annotations

import re

import pytest
from tests.host.documents import CHECKOUT, text_of

from alpinehub.app import app
from cordata.testing import open_app

PAGE = text_of("reference/http.md")


def test_codes_of_the_server_are_in_its_code() -> None:
    code = "".join(path.read_text() for path in (CHECKOUT / "daemon/cordata").rglob("*.py"))
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", PAGE, re.MULTILINE)
    assert len(rows) > 10
    for _, names in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert f'"{name}"' in code, name


@pytest.mark.parametrize(("path", "status"), [("/api/health", 200), ("/api/ready", 200)])
async def test_hub_answers_a_get_on_the_documented_path(path: str, status: int) -> None:
    assert f"| `{path}` | GET, HEAD |" in PAGE
    async with open_app(app) as harness:
        assert (await harness.request("GET", path)).status == status


@pytest.mark.parametrize("path", re.findall(r"`(/api/\S+)`(?:, `\S+`)? \| POST", PAGE))
async def test_hub_has_each_path_that_is_posted_to(path: str) -> None:
    async with open_app(app) as harness:
        answer = await harness.request("POST", path)
        assert answer.status in (400, 401, 415, 422), (path, answer)
