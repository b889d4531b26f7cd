"""`@app.subscribe`: what is checked when it is declared, and what it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from cordata.app import App
from cordata.errors import ConfigError
from cordata.eventstore import StoredEvent
from cordata.store import Tx
from cordata.subscription import Subscription, SubscriptionContext


async def handler(event: StoredEvent, ctx: SubscriptionContext) -> None:
    """Handles nothing."""


async def clear(tx: Tx) -> None:
    """Clears nothing."""


def test_subscription_has_its_name_and_defaults() -> None:
    app = App("shop")
    subscription = app.subscribe("account")(handler)
    assert isinstance(subscription, Subscription)
    assert app.subscriptions == {"shop.handler": subscription}
    assert (subscription.category, subscription.origin, subscription.partitions) == (
        "account",
        "start",
        16,
    )
    assert (subscription.retries, subscription.on_error, subscription.batch) == (5, "block", None)
    assert subscription.clear is None
    assert subscription.reset(clear) is clear and subscription.clear is clear


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"category": "account-7"}, "'account-7' is not a valid category"),
        ({"from_": "middle"}, "from_ must be"),
        ({"from_": -1}, "from_ must be"),
        ({"partitions": 0}, "partitions must be a whole number from 1 to 256"),
        ({"partitions": 257}, "partitions must be a whole number from 1 to 256"),
        ({"partitions": "8"}, "partitions must be a whole number from 1 to 256"),
        ({"batch": 501}, "batch must be a whole number from 1 to 500"),
        ({"retries": -1}, "retries must be a whole number from 0"),
        ({"timeout_s": 0}, "timeout_s must be more than 0"),
        ({"retries": 10**9}, "retries must be a whole number from 0"),
        ({"timeout_s": 1e-9}, "timeout_s must be more than 0"),
        ({"name": "n" * 201}, "name must be a string of 1 to 200"),
        ({"on_error": "ignore"}, "on_error must be"),
    ],
)
def test_mistake_is_named_when_it_is_declared(given: dict[str, Any], text: str) -> None:
    app = App("shop")
    with pytest.raises(ConfigError, match=text):
        app.subscribe(**{"category": "account", **given})(handler)
    assert not app.subscriptions


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        App("shop").subscribe("a b", partitions=0, retries=-1)(handler)
    assert len(caught.value.problems) == 3


def test_plain_function_is_refused() -> None:
    def plain(event: StoredEvent, ctx: SubscriptionContext) -> None: ...

    with pytest.raises(ConfigError, match="must be an async function"):
        App("shop").subscribe("account")(plain)  # type: ignore[arg-type]
    subscription = App("shop").subscribe("account")(handler)
    with pytest.raises(ConfigError, match="must be an async function"):
        subscription.reset(lambda tx: None)


def test_name_is_taken_once() -> None:
    app = App("shop")
    app.subscribe("account")(handler)
    with pytest.raises(ConfigError, match="declared twice"):
        app.subscribe("room")(handler)
    other = app.subscribe("room", name="shop.other")(handler)
    with pytest.raises(ConfigError, match="two reset functions"):
        other.reset(clear)
        other.reset(clear)
