"""Commands of the pool: how an application declares what its children run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

from cordata.errors import ConfigError
from cordata.registry import CommandTask

F = TypeVar("F", bound=Callable[..., Any])

#: As long as a name may be on the wire.
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_.:/-]{0,199}\Z")
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


class Commanding:
    """The part of App that is about the pool."""

    def __init__(self) -> None:
        #: By name.
        self.commands: dict[str, CommandTask] = {}
        #: `module:function` of what a child runs once, in this order, before it takes calls.
        self.child_inits: list[str] = []

    @overload
    def command(self, name: str) -> Callable[[F], F]: ...

    @overload
    def command(self, name: str, *, at: str) -> None: ...

    def command(self, name: str, *, at: str | None = None) -> Callable[[F], F] | None:
        """Let the pool's children run a function as the command `name`.

        It is called with the payload, as plain values, and the call's session, None without one;
        what it returns is the result. It may be a plain function, which may block and compute as
        long as it likes, or an async one; as a generator it gives a stream. It runs in a process
        that may be killed at any moment, and `cordata.current_call()` tells it about its call.

        A child imports the modules of its commands, and nothing else of the application. So keep
        them in modules of their own, and name them: `app.command("render", at="shop.pdf:render")`
        has `shop.pdf` imported in the children only. As a decorator it takes a module's function.
        Raises: ConfigError.
        """
        if not isinstance(name, str):  # a decorator without its parentheses
            what = getattr(name, "__name__", type(name).__name__)
            hint = f'write @app.command("{what}"), with the name in parentheses'
            raise ConfigError(f"command: takes a name first, not {what}", hint=hint)
        where = f"command({name!r})"
        if not _NAME.match(name):
            raise ConfigError(
                f"{where}: not a name for a command",
                hint="a letter, then letters, digits and _ . : / -, 200 at most",
            )
        if at is not None:
            self._add(name, _checked(at, where), None)
            return None

        def register(function: F) -> F:
            self._add(name, _place_of(function, where, "payload", "session"), function)
            return function

        return register

    @overload
    def child_init(self, function: F) -> F: ...

    @overload
    def child_init(self, *, at: str) -> None: ...

    def child_init(self, function: F | None = None, *, at: str | None = None) -> F | None:
        """Run a function without arguments, sync or async, once in each child before its first
        call: to load a model, to open a connection. A child takes no call until all have returned.

        As a decorator, or by its place: `app.child_init(at="shop.pdf:load_fonts")`, as for a
        command. When it raises, the child ends, and another is started after a pause. Raises:
        ConfigError.
        """
        if (function is None) == (at is None):
            raise ConfigError("child_init: takes a function, or at=")
        place = _place_of(function, "child_init") if at is None else _checked(at, "child_init")
        if place in self.child_inits:
            raise ConfigError(f"child_init: {place} is declared twice")
        self.child_inits.append(place)
        return function

    def _add(self, name: str, at: str, function: Callable[..., Any] | None) -> None:
        if name in self.commands:
            raise ConfigError(f"command {name!r} is declared twice")
        self.commands[name] = CommandTask(name=name, at=at, function=function)


def _checked(at: str, where: str) -> str:
    if not _PLACE.match(at):
        raise ConfigError(
            f"{where}: {at!r} is not module:function", hint='for example at="shop.pdf:render"'
        )
    return at


def _place_of(function: Any, where: str, *arguments: str) -> str:
    """`module:function`, where another process finds it, and calls it with these."""
    name = getattr(function, "__qualname__", repr(function))
    bound = inspect.ismethod(function) and not inspect.isclass(function.__self__)
    if (
        bound
        or not inspect.isroutine(function)
        or not _PLACE.match(f"{function.__module__}:{name}")
    ):
        raise ConfigError(
            f"{where}: {name} is no function of a module",
            hint="a child imports it by its name: no lambda, none within another function",
        )
    if function.__module__ == "__main__":
        raise ConfigError(
            f"{where}: {name} is in the program itself, which a child does not run",
            hint="put it into a module",
        )
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        wanted = ", ".join(arguments)
        raise ConfigError(f"{where}: {name} is called as {name}({wanted}): {error}") from None
    except ValueError:
        pass  # a builtin that does not tell
    return f"{function.__module__}:{name}"
