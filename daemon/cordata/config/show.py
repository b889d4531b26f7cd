"""The effective configuration as TOML: defaults marked, secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cordata.config.convert import is_section
from cordata.config.reader import Document, key_of
from cordata.config.sections import Config

_SECRET_KEY = re.compile(r"(^|_)(password|secret|token|key|passphrase)s?$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(://[^/@:]*:)[^/@]*(@)")
_MASK = "********"


def lines(config: Config, document: Document, credentials: Sequence[str]) -> Iterator[str]:
    """Line by line, valid TOML."""
    yield f"# {document.path or 'no file: defaults'}"
    for declaration in fields(Config):
        section = getattr(config, declaration.name)
        if is_section(type(section)):
            yield from _section(declaration.name, section, document.given)
    for instance, worker in sorted(config.workers.items()):
        given = {key for key in document.given if key.startswith(f"worker.{instance}.")}
        yield from _section(f"worker.{instance}", worker, given, only_given=True)
    for name, pool in sorted(config.pools.items()):
        given = {key for key in document.given if key.startswith(f"pool.{name}.")}
        yield from _section(f"pool.{name}", pool, given, only_given=True)
    for name, section in config.settings.items():
        yield from _section(name, section, document.given)
    yield ""
    yield f"# credentials in {config.paths.credentials}:"
    yield from (f"#   {name} = {_MASK}" for name in credentials)


def _section(
    name: str, section: Any, given: set[str], *, only_given: bool = False
) -> Iterator[str]:
    yield ""
    yield f"[{name}]"
    nested = []
    for declaration in fields(section):
        key = key_of(declaration.name)
        value = getattr(section, declaration.name)
        if is_section(type(value)):
            nested.append((key, value))
            continue
        is_given = f"{name}.{key}" in given
        if value is None:
            yield f"# {key} is not set"
        elif is_given or not only_given:
            shown = _MASK if _SECRET_KEY.search(key) and value else value
            yield f"{key} = {literal(shown)}" + ("" if is_given else "  # default")
    for key, value in nested:
        yield from _section(f"{name}.{key}", value, given)


def literal(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path):
        text = _URL_PASSWORD.sub(rf"\1{_MASK}\2", str(value))
        # A basic string of TOML is a string of JSON, but for DEL.
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(k)} = {literal(v)}" for k, v in value.items()) + "}"
    return str(value)
