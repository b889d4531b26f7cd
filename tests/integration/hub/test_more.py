"""Lists of the `alpinehub` command that are cut say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.command import Run
from tests.integration.hub.material import BOOKING, open_hub

_UNDELIVERABLE = (
    "UPDATE delivery SET undeliverable_code = 'schema', undeliverable_text = 'x',"
    " undeliverable_at = 1"
)
_MESSAGE = (
    "INSERT INTO inbound_message (hotel_id, account_id, action, protocol, request_id, received_at,"
    " size_bytes, outcome) SELECT hotel_id, account_id, 'x', 'x', 'x', 1, 1, 'success'"
    " FROM account_hotel"
)


@pytest.mark.usefixtures("each_store")
async def test_list_says_that_there_is_more_when_it_is_cut(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:

        async def listed(*words: str) -> tuple[dict[str, Any], str]:
            done = await run(*words, "--json")
            return done.json, done.err

        for number in range(3):
            await hub.post({**BOOKING, "external_id": f"n-{number}"})
        await hub.handle_events()
        await hub.execute(_UNDELIVERABLE)
        for state in ((), ("--state", "undeliverable")):
            page, said = await listed("inbox", "list", *state, "--limit", "2")
            assert len(page["items"]) == 2
            assert said == "there are more undeliverable guest requests: raise --limit\n"
            page, said = await listed("inbox", "list", *state, "--limit", "3")
            assert (len(page["items"]), said) == (3, "")

        for _ in range(3):
            await hub.execute(_MESSAGE)
        page, said = await listed("hotel", "messages", "DEMO", "--limit", "2")
        assert (len(page["items"]), said) == (2, "there is more: raise --limit\n")
        assert "next" not in page
        page, said = await listed("hotel", "messages", "DEMO", "--limit", "3")
        assert (len(page["items"]), said) == (3, "")


@pytest.mark.usefixtures("each_store")
async def test_find_by_name_says_that_there_is_more_when_more_than_50_have_it(
    tmp_path: Path, run: Run
) -> None:
    async with open_hub(tmp_path) as hub:

        async def found(*words: str) -> tuple[dict[str, Any], str]:
            done = await run("customer", "find", *words, "--json")
            return done.json, done.err

        await run("hotel", "add", "ROSE", "--name", "R")
        for number in range(51):
            names = {"last_name": "Muster", "email": f"eva{number}@example.com"}
            await hub.post({**BOOKING, "external_id": f"n-{number}", **names})
        page, said = await found("muster")
        assert [row["email"] for row in page["customers"]][:1] == ["eva1@example.com"]
        assert len(page["customers"]) == 50 and "next" not in page
        assert said == "there is more: give more of the name, or --hotel\n"
        # The customers of other hotels take no place in the list of one.
        await hub.execute(
            "UPDATE customer SET hotel_id = (SELECT id FROM hotel WHERE code = 'ROSE')"
            " WHERE email = 'eva0@example.com'"
        )
        page, said = await found("muster", "--hotel", "ROSE")
        assert ([row["email"] for row in page["customers"]], said) == (["eva0@example.com"], "")
        page, said = await found("muster", "--hotel", "DEMO")
        assert (len(page["customers"]), said) == (50, "")
