"""Whatever goes wrong in the hub, the alerts about it name no guest and no secret."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.integration.hub.lenient import GOOGLE, PATH_SECRET, open_lenient, post_google, post_wix
from tests.integration.hub.lenient import wix as wix_form
from tests.integration.hub.material import BOOKING, SECRET

from alpinehub.monitoring import watch
from cordata.alert import Alerter, AlertHandler, Buffer, pace_of
from cordata.config.sections import AlertConfig, MailConfig
from cordata.core.alert import AlertGroup, text_of
from cordata.log import handled_by

pytestmark = pytest.mark.usefixtures("each_store")

NAME, MAIL, PHONE = "Zaphod Beeblebrox", "zaphod@private.example", "+39 333 765 4321"
PLANTED = ("Zaphod", "Beeblebrox", "private.example", "4321", SECRET, PATH_SECRET, "planted")
GUEST = {"first_name": NAME, "email": MAIL, "phone": PHONE, "message": f"{NAME} {MAIL} {PHONE}"}


@contextmanager
def alerts() -> Iterator[list[AlertGroup]]:
    """The alerts of what is logged inside, filled at the end."""
    buffer, groups = Buffer(), list[AlertGroup]()
    nobody = Alerter(
        AlertConfig(),
        MailConfig(),
        login=None,
        directories=[],
        postpone=lambda group: None,
    )
    with handled_by(cast(logging.Handler, AlertHandler(nobody, buffer, place="host worker@0"))):
        yield groups
    groups += buffer.take()


def words_of(groups: list[AlertGroup]) -> str:
    """What alerts say, without times and fingerprints, which may have any digits."""
    return repr([(group.cause, group.title, group.sample, group.place) for group in groups])


CODE = "20261122"


async def test_alerts_name_the_hotel_when_its_code_is_a_long_number(tmp_path: Path) -> None:
    with alerts() as groups:
        async with open_lenient(tmp_path) as hub:
            await hub.execute("UPDATE hotel SET code = ?", CODE)
            for form in (
                wix_form(submissionId="s-1"),
                wix_form(submissionId="s-2", field__pet_1=PHONE),
            ):
                assert (await post_wix(hub, form, hotel=CODE)).status == 200
                await hub.handle_events()
            await post_google(hub, {**GOOGLE, "user_column_data": [{"string_value": PHONE}]})
            await hub.handle_events()
            hub.harness.advance(hours=48)
            await watch(hub.ctx)
    told = {group.cause.partition(":")[0]: group for group in groups}
    for kind in ("app-unmapped", "app-form-changed", "app-stale-client"):
        assert f"hotel {CODE} " in told[kind].sample
    assert f"`alpinehub inbox map {CODE} wix " in told["app-form-changed"].sample
    assert "4321" not in words_of(groups)


async def test_alerts_of_the_hub_name_no_guest_and_no_secret(tmp_path: Path) -> None:
    with alerts() as groups:
        async with open_lenient(tmp_path) as hub:
            await hub.post({**BOOKING, **GUEST})
            await hub.post({**BOOKING, **GUEST, "arrival": NAME})
            await hub.post(BOOKING, headers={"x-webhook-secret": f"{SECRET}-wrong"})
            when = {"field__date_picker_a7c8": NAME, "field__date_picker_7e65": MAIL}
            await post_wix(hub, wix_form(field__email_5139=MAIL, **when))
            await post_wix(hub, wix_form(field__first_name_abae=NAME, field__pet_1=PHONE))
            await post_google(hub, {**GOOGLE, "user_column_data": [{"string_value": NAME}]})
            await hub.handle_events()
            hub.harness.advance(hours=48)
            await watch(hub.ctx)
            hub.ctx.alert("careless", f"{NAME!r} <{MAIL}> {PHONE} has password={SECRET}")
    causes = {group.cause for group in groups}
    assert {"app-stale-client:DEMO:demo", "app-careless"} <= causes
    assert any(cause.startswith("app-unmapped:") for cause in causes)
    mail = text_of(groups, pace_of(AlertConfig()))
    assert [word for word in PLANTED if word in words_of(groups)] == []
    longer = [word if word != "4321" else PHONE[-8:] for word in PLANTED]
    assert [word for word in longer if word in mail] == []
