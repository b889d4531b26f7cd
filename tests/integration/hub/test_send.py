"""`alpinehub webhook send` against the hub on a real socket: every sample of ours is understood."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.alpinebits_client.peers import http, scripted
from tests.integration.hub.lenient import GOOGLE_KEY, PATH_SECRET, data, open_lenient
from tests.integration.hub.material import SECRET
from tests.integration.hub.served import client_of
from tests.servers import fork_server

SECRETS = {
    "generic": SECRET,
    "wix": PATH_SECRET,
    "google": GOOGLE_KEY,
    "form": PATH_SECRET.replace("secret", "form"),
}


async def send(
    base: str, *words: str, secret: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        fork_server.run,
        "alpinehub",
        ["webhook", "send", *words, "--url", base, "--hotel", "DEMO"],
        given=given,
        environment={"PYTHONPATH": ":".join(sys.path), "ALPINEHUB_SECRET": secret},
    )


@pytest.mark.parametrize("language", ["de", "it", "en", "fr"])
async def test_sample_of_each_kind_becomes_a_request(tmp_path: Path, language: str) -> None:
    async with open_lenient(tmp_path, now=None) as hub, client_of(hub) as client:
        base = str(client.base_url)
        for number, (kind, secret) in enumerate(SECRETS.items(), 1):
            done = await send(base, kind, "--language", language, secret=secret)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.startswith(f"{kind}: 200") and secret not in done.stdout
            await hub.handle_events()
            assert await hub.one("SELECT count(*) FROM reservation") == number
            record = await data(hub)
            assert (record["first_name"], record["last_name"]) == ("Eva", "Muster")
            assert "extra" not in record
            if kind != "google":
                assert (record["adults"], record["children"]) == (2, [5, 8])
                assert record["language"] == language and record["message"]
                assert record["arrival"] < record["departure"]
        assert await hub.one("SELECT count(*) FROM inbox WHERE state = 'mapped'") == 4


async def test_send_says_what_became_of_it(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, now=None) as hub, client_of(hub) as client:
        base = str(client.base_url)
        twice = await send(base, "wix", "--id", "s-1", "--count", "2", "--json", secret=PATH_SECRET)
        assert [json.loads(line)["status"] for line in twice.stdout.splitlines()] == [200, 200]
        await hub.handle_events()
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "duplicate"]
        assert (await send(base, "google", "--odd", secret=SECRETS["google"])).returncode == 0
        await hub.handle_events()
        assert await hub.one("SELECT outcome FROM inbox ORDER BY id DESC LIMIT 1") == "test"
        assert (await send(base, "form", "--odd", secret=SECRETS["form"])).returncode == 0
        assert await hub.one("SELECT count(*) FROM hour_change WHERE kind = 'spam'") == 1
        own = await send(base, "wix", "--file", "-", secret=PATH_SECRET, given='{"a": 1}')
        assert own.returncode == 0
        wrong = await send(base, "wix", secret="x" * 20)
        assert wrong.returncode == 1 and "wix: 401" in wrong.stdout and "x" * 20 not in wrong.stdout
        nobody = await send("http://127.0.0.1:1", "wix", secret=PATH_SECRET)
        assert nobody.returncode == 3 and "cannot be reached" in nobody.stderr
        assert (await send(base, "wix", secret="")).returncode == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("wix", "--odd"), "--odd is for the kinds google and form only"),
        (("generic", "--odd"), "--odd is for the kinds google and form only"),
        (("form", "--odd", "--file", "-"), "leave them out with --file"),
        (("wix", "--id", "1", "--file", "-"), "leave them out with --file"),
        (("wix", "--content-type", "text/plain"), "--content-type is for --file only"),
    ],
)
async def test_send_refuses_an_option_that_would_have_no_effect(
    words: tuple[str, ...], told: str
) -> None:
    done = await send("http://127.0.0.1:1", *words, secret=PATH_SECRET, given="{}")
    assert done.returncode == 2 and told in done.stderr


async def test_secret_that_is_not_utf_8_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff")
    file = ("--secret-file", str(tmp_path / "secret"))
    done = await send("http://127.0.0.1:1", "wix", *file, secret="")
    assert done.returncode == 2 and "is not UTF-8 text" in done.stderr


@pytest.mark.parametrize("json_", [True, False])
async def test_send_shows_no_part_of_the_secret_that_a_server_repeats(json_: bool) -> None:
    secret = SECRETS["wix"]
    place = {"Location": f"http://other.example/api/webhook/wix/DEMO/{secret}"}
    # The answer is cut where the secret stands.
    answer = http("x" * 490 + secret, "307 Temporary Redirect", place)
    async with scripted(lambda asked: answer) as peer:
        base = f"http://127.0.0.1:{peer.port}"
        done = await send(base, "wix", *(["--json"] if json_ else []), secret=secret)
        assert secret in peer.asked[0].line
        assert "http://other.example/api/webhook/wix/DEMO/..." in done.stdout
        assert secret[:8] not in done.stdout + done.stderr
