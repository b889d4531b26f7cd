"""The application of "Events and their handlers", and what may carry its events."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.host.documents import blocks
from tests.integration.cli.command import cordata, write_config

from cordata import KeyReused
from cordata.testing import open_app


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, imported from a directory in which its reader wrote it."""
    (text,) = [one for one in blocks("python") if one.startswith("# orders.py\n")]
    (tmp_path / "orders.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("orders")
    sys.modules.pop("orders", None)


async def test_order_of_the_documents_happens_once_and_reaches_each_group(orders: Any) -> None:
    async with open_app(orders.app) as harness:
        for _ in range(2):
            assert await orders.order(harness.ctx, "eva", "boots", "k1") == "boots for eva"
        with pytest.raises(KeyReused):
            await orders.order(harness.ctx, "eva", "skis", "k1")
        assert await harness.drain() == 2  # reserve and ship
        [shipped] = await harness.outbox("order.shipped")
        assert (shipped.key, shipped.payload) == ("eva", {"item": "boots"})
        assert await harness.mails() == []
        await harness.drain(within=timedelta(hours=1))
        [mail] = await harness.mails()
        assert mail.text == "Still open: eva"


async def test_order_of_the_documents_is_given_up_by_one_group_only(orders: Any) -> None:
    async with open_app(orders.app) as harness:
        await orders.order(harness.ctx, "eva", "nothing", "k2")
        await harness.drain(raising=False)
        [letter] = await harness.dead_letters()
        assert (letter.group, letter.attempts) == ("orders.reserve", 1)
        assert len(await harness.outbox("order.shipped")) == 1


def test_defaults_of_the_documents_are_those_of_the_code(orders: Any) -> None:
    from cordata.config.sections import EngineConfig

    remind = next(one for one in orders.app.handlers if one.group == "orders.remind")
    engine = EngineConfig()
    assert (remind.retries, remind.timeout_s) == (5, 60.0)
    assert (engine.concurrency, engine.retry_first_s, engine.retry_max_s) == (16, 1.0, 300.0)


@pytest.mark.parametrize("sentinel", [False, True])
def test_broker_of_the_documents_passes_the_check(tmp_path: Path, sentinel: bool) -> None:
    (text,) = [one for one in blocks("toml") if one.startswith("[broker]\n")]
    urls = re.findall(r"\b(redis\S*://\S*?)\"?\n", text)
    assert [url.partition(":")[0] for url in urls] == ["redis", "rediss", "redis+sentinel"]
    tls = urls[1].partition("?ssl_ca_certs=")
    assert tls[2] == "/etc/cordata/redis-ca.crt"
    config = write_config(tmp_path, text.replace(urls[0], urls[2]) if sentinel else text)
    done = cordata("config", "check", "--config", str(config))
    assert done.returncode == 0, done.stderr
