"""The words of an SQL statement: enough to find its parts, not to understand it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$)
      | \$(?P<param>\d+)
      | (?P<name>"(?:[^"]|"")*"|[^\W\d][\w$]*)
      | (?P<sign>::|[^\s])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a sign or a literal; spaces and comments are left out."""

    text: str
    #: An unquoted word, upper case; "" for everything else.
    word: str
    #: A name of something, as the server folds it.
    name: str
    #: Number of a parameter; 0: none.
    param: int
    depth: int
    start: int
    end: int


def read_tokens(sql: str) -> list[Token]:
    """All of a statement."""
    found = []
    depth = 0
    for match in _TOKEN.finditer(sql):
        if match["space"] is not None:
            continue
        text = match[0]
        if text in (")", "]"):
            depth -= 1
        name = match["name"] or ""
        quoted = name.startswith('"')
        found.append(
            Token(
                text,
                "" if quoted else name.upper(),
                name[1:-1].replace('""', '"') if quoted else name.lower(),
                int(match["param"] or 0),
                depth,
                match.start(),
                match.end(),
            )
        )
        if text in ("(", "["):
            depth += 1
    return found


def find_words(tokens: Sequence[Token], words: Sequence[str], *, depth: int | None = 0) -> int:
    """Where these words follow each other; -1: nowhere."""
    for i in range(len(tokens) - len(words) + 1):
        if depth is not None and tokens[i].depth != depth:
            continue
        if all(tokens[i + n].word == word for n, word in enumerate(words)):
            return i
    return -1


def read_table(tokens: Sequence[Token], at: int) -> tuple[str, int]:
    """A table's name, its schema left out, and where it ends; "": there is none."""
    if at < len(tokens) and tokens[at].word == "ONLY":
        at += 1
    name = ""
    while at < len(tokens) and tokens[at].name:
        name = tokens[at].name
        at += 1
        if at >= len(tokens) or tokens[at].text != ".":
            break
        at += 1
    return name, at


def closing(tokens: Sequence[Token], at: int) -> int:
    """Where the bracket that opens at `at` is closed."""
    depth = tokens[at].depth
    return next(
        (i for i in range(at + 1, len(tokens)) if tokens[i].depth == depth), len(tokens) - 1
    )


def split_list(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """What stands between the commas of the outermost level."""
    parts: list[Sequence[Token]] = []
    begin = 0
    for i, token in enumerate(tokens):
        if token.text == "," and token.depth == tokens[0].depth:
            parts.append(tokens[begin:i])
            begin = i + 1
    parts.append(tokens[begin:])
    return parts


def lone_param(tokens: Sequence[Token]) -> int:
    """The index of the parameter that these are, with or without a cast to a simple type; or -1."""
    plain = len(tokens) == 1 or (len(tokens) == 3 and tokens[1].text == "::" and tokens[2].name)
    return tokens[0].param - 1 if plain and tokens[0].param else -1
