"""Every registration is checked when it is made."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from cordata.app import App
from cordata.errors import ConfigError


async def handler(*_: Any) -> None:
    """Any async function."""


def plain(*_: Any) -> None:
    """Not an async function."""


def named(name: str) -> Callable[..., Any]:
    async def function(*_: Any) -> None:
        """One more."""

    function.__name__ = name
    return function


@dataclass(frozen=True)
class Section:
    x: int = 1


def test_app_keeps_what_is_registered() -> None:
    app = App("shop")
    app.on("a.b", retries=1)(handler)
    app.job("report")(named("report"))
    app.backfill("hashes")(handler)
    app.every(seconds=1)(handler)
    app.startup(handler)
    app.mount("/api", handler)
    app.settings("shop")(Section)
    assert [(s.type, s.group, s.retries) for s in app.handlers] == [("a.b", "shop.handler", 1)]
    assert app.groups_of("a.b") == ["shop.handler"]
    assert app.groups_of("a.c") == []
    assert (list(app.jobs), list(app.backfills)) == (["report"], ["hashes"])
    assert [m.prefix for m in app.mounts] == ["/api"]
    assert app.settings_classes == {"shop": Section}


def test_app_has_one_chain_of_migrations() -> None:
    app = App("shop")
    app.migrations("shop.sql")
    with pytest.raises(
        ConfigError, match=r"migrations\('shop.more'\): the App has migrations in 'shop.sql'"
    ):
        app.migrations("shop.more")
    assert app.migration_package == "shop.sql"


@pytest.mark.parametrize("name", ["", "Shop", "1shop", "a b", "cordata", "x" * 64, "shop\n"])
def test_app_refuses_a_name_that_cannot_be_a_component(name: str) -> None:
    with pytest.raises(ConfigError, match="not a name"):
        App(name)


@pytest.mark.parametrize(
    ("register", "problem"),
    [
        (lambda app: app.on("a")(plain), r"on\('a'\): plain must be an async function"),
        (lambda app: app.on("a", retries=-1)(handler), "retries must be a whole number from 0"),
        (lambda app: app.on("a", retries=10**9)(handler), "retries must be a whole number from 0"),
        (lambda app: app.on("a", retries=1.5)(handler), "retries must be a whole number from 0"),
        (
            lambda app: app.on("a", concurrency=0)(handler),
            "concurrency must be a whole number from 1",
        ),
        (lambda app: app.on("a", concurrency=10**9)(handler), "to 1,000, not 1000000000"),
        (
            lambda app: app.on("a", concurrency=True)(handler),
            "concurrency must be a whole number from 1",
        ),
        (lambda app: app.on("a", timeout_s=1e-9)(handler), "timeout_s must be more than 0"),
        (lambda app: app.on("a", timeout_s=1e300)(handler), "timeout_s must be more than 0"),
        (lambda app: app.on("a", timeout_s=float("nan"))(handler), "timeout_s must be more"),
        (lambda app: app.on("a", timeout_s="60")(handler), "timeout_s must be more than 0"),
        (lambda app: app.on("")(handler), "the type must be a string of 1 to 200 characters"),
        (lambda app: app.on("t" * 201)(handler), "the type must be a string of 1 to 200"),
        (lambda app: app.on("a\0")(handler), "the type must be a string .* without NUL"),
        (lambda app: app.on("a", group="g" * 201)(handler), "group must be a string of 1 to 200"),
        (lambda app: app.on("a", timeout_s=0)(handler), "timeout_s must be more than 0"),
        (lambda app: app.startup(plain), "startup: plain must be an async function"),
        (lambda app: app.backfill("x")(plain), "must be an async function"),
        (lambda app: app.backfill("x", batch=0), "batch must be a whole number from 1"),
        (lambda app: app.backfill("x", batch=10**9), "batch must be a whole number from 1"),
        (lambda app: app.backfill("", batch=1), "the name must be a string"),
        (lambda app: app.every(seconds=1e-9), "seconds must be more than 0"),
        (lambda app: app.every(seconds=1, timeout_s=1e300), "timeout_s must be more than 0"),
        (lambda app: app.job("x", process_lease_s=1e300)(handler), "process_lease_s must be"),
        (lambda app: app.every(seconds=1)(plain), "must be an async function"),
        (lambda app: app.every(seconds=0), "must be more than 0"),
        (lambda app: app.job("x")(plain), "must be an async function"),
        (lambda app: app.job("x", due=plain)(handler), "must be an async function"),
        (lambda app: app.job("x/../y")(handler), "lower-case letters"),
        (lambda app: app.job("x", process_lease_s=0)(handler), "process_lease_s must be"),
        (lambda app: app.mount("api", handler), "must start with /"),
        (lambda app: app.mount("/api/", handler), "not end with it"),
        (lambda app: app.mount("/api", "x"), "str is not an ASGI application"),
        (lambda app: app.settings("http")(Section), r"\[http\] is the runtime's own"),
        (lambda app: app.settings("shop")(dict), "dict is not a dataclass"),
    ],
)
def test_app_refuses_a_wrong_registration(register: Callable[[App], Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        register(App("shop"))


async def alone() -> None:
    """Takes nothing."""


async def of_two(a: Any, b: Any) -> None:
    """Takes two."""


async def of_three(a: Any, b: Any, c: Any, *, d: int = 1) -> None:
    """Takes three."""


@pytest.mark.parametrize(
    ("register", "call"),
    [
        (lambda app: app.on("a")(of_three), r"on\('a'\): of_three is called as .*\(event, ctx\)"),
        (lambda app: app.on("a")(alone), "too many positional arguments"),
        (lambda app: app.startup(of_two), r"startup: of_two is called as of_two\(ctx\)"),
        (lambda app: app.backfill("x")(of_three), r"of_three\(ctx, cursor\)"),
        (lambda app: app.job("x")(of_two), r"of_two\(ctx, scope, period\)"),
        (lambda app: app.job("x", due=alone)(of_three), r"due=\): alone is .* alone\(ctx, now\)"),
        (lambda app: app.every(seconds=1)(alone), r"alone\(ctx\)"),
        (lambda app: app.subscribe("a")(alone), r"alone\(event, ctx\)"),
        (lambda app: app.subscribe("a")(of_two).reset(of_two), r"of_two\(tx\)"),
    ],
)
def test_app_refuses_a_function_that_it_cannot_call(
    register: Callable[[App], Any], call: str
) -> None:
    with pytest.raises(ConfigError, match=call):
        register(App("shop"))


def test_app_takes_a_function_whose_decorator_passes_more() -> None:
    @functools.wraps(of_three)
    async def wrapper(event: Any, ctx: Any) -> None:
        await of_three(event, ctx, 3)

    App("shop").on("a")(wrapper)


@pytest.mark.parametrize(
    "register",
    [
        lambda app: app.on("a")(handler),
        lambda app: app.backfill("x")(handler),
        lambda app: app.job("x")(handler),
        lambda app: app.mount("/x", handler),
        lambda app: app.settings("x")(Section),
    ],
)
def test_app_refuses_the_same_name_twice(register: Callable[[App], Any]) -> None:
    app = App("shop")
    register(app)
    with pytest.raises(ConfigError, match="twice"):
        register(app)
