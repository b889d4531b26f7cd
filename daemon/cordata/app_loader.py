"""Loads an application and its checked configuration, from a file and the name of an App."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import walk_tb

from cordata.app import App
from cordata.config import Config, Document, build, choose_app, find_file, open_document
from cordata.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A checked configuration with its application."""

    config: Config
    app: App
    document: Document


def load(config: str | Path | None = None, app: str | None = None) -> Loaded:
    """Read the configuration, import the application, check both.

    `config`: the file (None: CORDATA_CONFIG, else ./cordata.toml, else the default file). `app`:
    `module:attribute` to import instead of the configured one, also from the working directory.
    Raises: ConfigError with every problem.
    """
    document = open_document(find_file(config), app)
    try:
        section = choose_app(document, app)
        loaded = import_app(section.import_, section.path)
    except ConfigError as error:
        # One run reports every problem of the file.
        problems = dict.fromkeys((*error.problems, *_problems(document)))
        source = None if app else document.source("app", "import")
        is_drop_in = source not in (None, document.path)
        named = f"{source} names the application; " if is_drop_in else ""
        raise ConfigError(*problems, hint=f"{named}{error.hint or ''}" or None) from error
    complete = build(document, loaded.settings_classes)
    return Loaded(config=replace(complete, app=section), app=loaded, document=document)


def load_runtime(config: str | Path | None = None) -> Config:
    """Read the runtime's sections only; the application is not imported. Raises: ConfigError."""
    return build(open_document(find_file(config)), None)


def salvage(config: str | Path | None, report: Callable[[str], None]) -> Config:
    """The valid sections of a broken file, and defaults for the rest: for alerts about that file.

    Calls `report` with each problem.
    """
    try:
        document = open_document(find_file(config))
    except ConfigError as error:
        report(f"{error}; all settings have their defaults")
        return build(Document(path=None), None)
    usable = {}
    for name, table in document.tables.items():
        try:
            build(replace(document, tables={name: table}), None)
        except ConfigError as error:
            for problem in error.problems:
                report(problem)
        else:
            usable[name] = table
    return build(replace(document, tables=usable), None)


def import_app(spec: str, path: Sequence[Path] = ()) -> App:
    """The App at `module:attribute`, imported with `path` in front of sys.path.

    Raises: ConfigError when there is none, or when its module fails: with the file and line.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise ConfigError(
            f"[app] import: {spec!r} is not module:attribute", hint='for example "shop.app:app"'
        )
    for directory in reversed(path):
        if os.fspath(directory) not in sys.path:
            sys.path.insert(0, os.fspath(directory))
    try:
        app = getattr(importlib.import_module(module_name), attribute)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        looked = ", ".join(map(_readable, path)) or "Python's own path"
        hint = f"looked in {looked}; [app] path adds directories"
        if (error.name or "").partition(".")[0] != module_name.partition(".")[0]:
            hint += f"; or install it, {spec} imports it"
        raise ConfigError(
            f"[app] import: no module {error.name!r} (for {spec})", hint=hint
        ) from error
    except AttributeError as error:
        if attribute not in str(error):
            raise ConfigError(_failed(spec, error)) from error
        raise ConfigError(f"[app] import: {module_name} has no {attribute!r}") from error
    except Exception as error:
        raise ConfigError(_failed(spec, error), hint="--debug shows the traceback") from error
    if not isinstance(app, App):
        raise ConfigError(f"[app] import: {spec} is a {type(app).__name__}, not an App")
    return app


def _readable(directory: Path) -> str:
    """The directory, and whether this user cannot read it: a unit's user sees no /home, say."""
    readable = os.access(directory, os.R_OK | os.X_OK)
    return f"{directory}" if readable else f"{directory}, which this process cannot read"


def _failed(spec: str, error: Exception) -> str:
    """The problem, with the line of the application that failed, not one of Python's importer."""
    places = [
        f" (at {frame.f_code.co_filename}:{line})"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] != "importlib"
    ]
    # The first is the import here: a file that cannot be read or parsed has no line that ran.
    place = places[-1] if len(places) > 1 else ""
    return f"[app] import: {spec} failed: {type(error).__name__}: {error}{place}"


def _problems(document: Document) -> tuple[str, ...]:
    try:
        build(document, None)
    except ConfigError as error:
        return error.problems
    return ()
