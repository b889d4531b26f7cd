"""A new secret or password, and the old one beside it for a while: nothing is lost in between."""

from __future__ import annotations

import hmac
import json
import re
from itertools import count
from pathlib import Path

import pytest
from tests.integration.hub.command import Run
from tests.integration.hub.lenient import (
    GOOGLE,
    GOOGLE_KEY,
    PATH_SECRET,
    WIX,
    open_lenient,
    post_form,
    post_google,
)
from tests.integration.hub.material import BOOKING, SECRET, Hub, forget_directory
from tests.integration.hub.stores import on_sqlite
from tests.raw import raw

from alpinehub.accounts import set_password
from alpinehub.hotels import NewHotel, Unusable, add_hotel
from alpinehub.login import authenticate
from alpinehub.sources import add_source, set_options, set_secret, show_source

pytestmark = pytest.mark.usefixtures("each_store")
NEW = "another-secret-9876543210"


async def wix(hub: Hub, secret: str) -> int:
    path = f"/api/webhook/wix/DEMO/{secret}"
    return (await hub.post(WIX, path=path, headers={"x-webhook-secret": None})).status


async def test_old_secret_is_taken_until_its_time_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        assert await wix(hub, PATH_SECRET) == 200
        kept = await set_secret(hub.ctx, "DEMO", "wix", NEW, keep_s=86_400)
        assert kept["before_until"]
        await set_secret(hub.ctx, "DEMO", "website", "new", keep_s=3600)
        await set_secret(hub.ctx, "DEMO", "ads", "new-key")
        forget_directory(hub.ctx)
        assert [await wix(hub, secret) for secret in (PATH_SECRET, NEW)] == [200, 200]
        assert caplog.text.count("still uses its secret from before the rotation") == 1
        assert PATH_SECRET not in caplog.text and NEW not in caplog.text
        assert (await post_google(hub)).status == 401
        assert (await post_google(hub, {**GOOGLE, "google_key": "new-key"})).status == 200

        body = json.dumps(BOOKING).encode()
        signed: dict[str, str | None] = {
            "x-webhook-secret": None,
            "x-signature-256": hmac.digest(SECRET.encode(), body, "sha256").hex(),
        }
        assert (await hub.post(body=body, headers=signed)).status == 200
        hub.harness.advance(seconds=3601)
        assert (await hub.post(body=body, headers=signed)).status == 401
        assert await wix(hub, PATH_SECRET) == 200
        hub.harness.advance(hours=23)
        assert [await wix(hub, secret) for secret in (PATH_SECRET, NEW)] == [401, 200]


async def test_secret_that_is_still_taken_belongs_to_its_source(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        await set_secret(hub.ctx, "DEMO", "wix", NEW, keep_s=60)
        with pytest.raises(Unusable, match="has this secret"):
            await add_source(hub.ctx, "DEMO", "wix", "wix2", PATH_SECRET)
        # And it may have it back.
        await set_secret(hub.ctx, "DEMO", "wix", PATH_SECRET, keep_s=60)
        forget_directory(hub.ctx)
        assert [await wix(hub, secret) for secret in (PATH_SECRET, NEW)] == [200, 200]


async def test_old_password_is_taken_until_its_time_is_over(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        at = count()  # wrong passwords from one address are limited

        async def let_in() -> list[bool]:
            return [
                await authenticate(hub.ctx, "demo", word, address=f"192.0.2.{next(at)}") is not None
                for word in ("demo", "new", "wrong", "")
            ]

        assert await let_in() == [True, False, False, False]
        await set_password(hub.ctx.store, "demo", "new", keep_s=60)
        forget_directory(hub.ctx)
        assert await let_in() == [True, True, False, False]
        hub.harness.advance(seconds=61)
        assert await let_in() == [False, True, False, False]
        await set_password(hub.ctx.store, "demo", "demo")
        forget_directory(hub.ctx)
        assert await let_in() == [True, False, False, False]


async def test_options_of_a_form_keep_what_a_newer_program_wrote(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        await hub.ctx.run(
            lambda tx: raw(tx, """UPDATE source SET options = '{"of_tomorrow": 1}'""")
        )
        await set_options(hub.ctx.store, "DEMO", "form", {"redirect": "https://x.example/danke"})
        shown = await show_source(hub.ctx.store, "DEMO", "form")
        assert shown["options"] == {"of_tomorrow": 1, "redirect": "https://x.example/danke"}
        for name, value in (
            ("redirect", "javascript:x"),
            ("redirect", "https://x\r\ny"),
            ("x", ""),
        ):
            with pytest.raises(Unusable):
                await set_options(hub.ctx.store, "DEMO", "form", {name: value})
        with pytest.raises(Unusable, match="no options"):
            await set_options(hub.ctx.store, "DEMO", "wix", {"honeypot": "x"})
        forget_directory(hub.ctx)
        answer = await post_form(hub)
        assert (answer.status, answer.body) == (303, b"")
        assert answer.headers[b"location"] == b"https://x.example/danke"


async def test_command_warns_when_hotels_share_a_google_key(tmp_path: Path, run: Run) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        await add_hotel(hub.ctx.store, NewHotel(code="HAUS/1", name="Haus"))
        words = ("source", "add", "HAUS/1", "leads", "--kind", "google", "--secret-stdin")
        done = await run(*words, "--json", given=f"{GOOGLE_KEY}\n")
        path = done.json["path"]
        assert "warning: DEMO has this key" in done.err
        forget_directory(hub.ctx)
        answer = await hub.post(GOOGLE, path=path, headers={"x-webhook-secret": None})
        assert answer.status == 200
        assert "warning" not in (await run("source", "rotate", "HAUS/1", "leads")).err


@on_sqlite
async def test_command_adds_shows_and_rotates_sources_of_every_kind(
    tmp_path: Path, run: Run
) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        option = ("--option", "redirect=https://x.example/")
        added = await run("source", "add", "DEMO", "home", "--kind", "form", *option, "--json")
        made = added.json
        assert made["path"] == f"/api/webhook/form/DEMO/{made['secret']}"
        said = await run("source", "add", "DEMO", "lead", "--kind", "google")
        assert "post to: https://HOST/api/webhook/google/DEMO\n" in said.out
        rotated = (await run("source", "rotate", "DEMO", "home", "--json")).json
        assert rotated["before_until"] and rotated["secret"] != made["secret"]
        assert rotated["path"].endswith(rotated["secret"])
        once = await run("source", "rotate", "DEMO", "lead")
        assert re.search(r"the old one is accepted until 2[0-9-]+T[0-9:.]+Z\n", once.out)
        at_once = await run("source", "rotate", "DEMO", "lead", "--keep", "0")
        assert "the old one is no longer accepted\n" in at_once.out
        await run("source", "set", "DEMO", "home", "--option", "honeypot=url2")
        kept = await run("account", "rotate", "demo", "--keep", "2h")
        assert "the old one is accepted for another 7200 s\n" in kept.out
        for path in (made["path"], rotated["path"]):
            forget_directory(hub.ctx)
            sent = {"content-type": "application/x-www-form-urlencoded", "x-webhook-secret": None}
            assert (await hub.post(body=b"a=b", path=path, headers=sent)).status == 303
        await hub.handle_events()
        shown = await run("source", "show", "DEMO", "home")
        assert "honeypot" in shown.out and "FORM  FIELDS\n-     a\n" in shown.out
        assert rotated["secret"] not in shown.out
        words = ("source", "add", "DEMO", "w", "--kind", "wix", "--secret-stdin")
        assert "20 to 128" in (await run(*words, given="short\n", code=1)).err
