"""Commands and inits are checked when they are declared, and kept by their place."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from cordata.app import App
from cordata.errors import ConfigError


def render(payload: Any, session: Any) -> Any:
    """A command of this module."""


async def look(payload: Any, session: Any) -> Any:
    """An async one."""


class Drawing:
    @staticmethod
    def draw(payload: Any, session: Any) -> Any:
        """One of a class."""

    def erase(self, payload: Any, session: Any) -> Any:
        """One of an object, which no child has."""


def warm_up() -> None:
    """An init."""


def test_commands_are_kept_by_their_place() -> None:
    app = App("shop")
    assert app.command("render")(render) is render
    app.command("look")(look)
    app.command("draw")(Drawing.draw)
    app.command("pdf/print", at="shop.pdf:Printer.run")
    assert {name: task.at.rpartition(".")[2] for name, task in app.commands.items()} == {
        "render": "test_commands:render",
        "look": "test_commands:look",
        "draw": "draw",
        "pdf/print": "run",
    }
    assert app.commands["render"].at == f"{__name__}:render"
    assert app.commands["draw"].at == f"{__name__}:Drawing.draw"
    assert app.commands["render"].function is render
    assert app.commands["pdf/print"].function is None


def test_inits_keep_their_order() -> None:
    app = App("shop")
    app.child_init(at="shop.pdf:load_fonts")
    assert app.child_init(warm_up) is warm_up
    assert app.child_inits == ["shop.pdf:load_fonts", f"{__name__}:warm_up"]
    with pytest.raises(ConfigError, match="declared twice"):
        app.child_init(at="shop.pdf:load_fonts")
    with pytest.raises(ConfigError, match="pass either a function or at="):
        app.child_init()  # type: ignore[call-overload]


def test_command_says_how_to_write_it_when_its_parentheses_are_missing() -> None:
    app = App("shop")
    with pytest.raises(
        ConfigError, match="the first argument must be a name, not render"
    ) as caught:
        app.command(render)  # type: ignore[call-overload]
    assert '@app.command("render")' in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["", "1st", "a b", "ä", "x" * 201])
def test_command_refuses_a_name(name: str) -> None:
    with pytest.raises(ConfigError, match="not a name for a command"):
        App("shop").command(name)


@pytest.mark.parametrize(
    "at", ["", "shop", "shop:", ":f", "shop:f()", "shop.:f", "shop:f.", "a b:c"]
)
def test_command_refuses_a_place(at: str) -> None:
    with pytest.raises(ConfigError, match="is not module:function"):
        App("shop").command("render", at=at)


def test_command_refuses_what_a_child_cannot_import() -> None:
    app = App("shop")

    def inner(payload: Any, session: Any) -> None:
        """Only here."""

    for function in (inner, lambda payload, session: None, Drawing, object(), Drawing().erase):
        with pytest.raises(ConfigError, match="is not a function at the top level of a module"):
            app.command("x")(function)  # type: ignore[type-var]
    outer = FunctionType(render.__code__, {"__name__": "__main__"}, "outer")
    with pytest.raises(ConfigError, match="in the main program"):
        app.command("x")(outer)
    assert app.commands == {}


def test_what_cannot_be_called_as_it_will_be_is_refused() -> None:
    app = App("shop")
    with pytest.raises(ConfigError, match=r"child_init: render is called as render\(\): missing"):
        app.child_init(render)
    assert (app.commands, app.child_inits) == ({}, [])


def test_command_refuses_a_name_that_is_taken() -> None:
    app = App("shop")
    app.command("render")(render)
    with pytest.raises(ConfigError, match="command 'render' is declared twice"):
        app.command("render", at="shop.pdf:render")
