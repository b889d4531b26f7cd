"""Units made of single steps, and what they do when they run one after the other: in plain Python.

A step is (name, key, number). What the unit returns is the list of what its steps returned.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from cordata.errors import Conflict, PermanentError
from cordata.store import Tx

Step = tuple[str, str, int]
Program = tuple[Step, ...]
#: What became of a unit: the list that it returned, or the kind of its error.
Outcome = list[Any] | str

READS = ("get", "range", "all", "share")


class Changed(Exception):
    """A unit changed its mind."""


@dataclass
class State:
    """The two tables."""

    kv: dict[str, int] = field(default_factory=dict)
    #: (who, key, text), in the order of their ids.
    notes: list[tuple[int, str | None, str]] = field(default_factory=list)


async def run_program(tx: Tx, program: Program, who: int) -> list[Any]:
    """A unit."""
    said: list[Any] = []
    for name, key, number in program:
        said.append(await _step(tx, name, key, number, who))
    return said


async def _step(tx: Tx, name: str, key: str, number: int, who: int) -> Any:
    match name:
        case "get" | "hold" | "share":
            row = await tx.fetch_one(f"kv.{name}", k=key)
            return None if row is None else row["v"]
        case "range":
            rows = await tx.fetch_all("kv.range", least=number, limit=2)
            return [(row["k"], row["v"]) for row in rows]
        case "all":
            return [(row["k"], row["v"]) for row in await tx.fetch_all("kv.all")]
        case "divide":
            row = await tx.fetch_one("kv.divide", v=number, by=number)
            return None if row is None else row["v"]
        case "add" | "offer" | "put" | "set":
            return await tx.execute(f"kv.{name}", k=key, v=number)
        case "write_add" | "write_offer" | "write_put" | "write_set":
            return await tx.write(name.replace("write_", "kv."), k=key, v=number)
        case "add_returning":
            row = await tx.fetch_one("kv.add_returning", k=key, v=number)
            assert row is not None
            return (row["k"], row["next"])
        case "count" | "take":
            row = await tx.fetch_one(f"kv.{name}", k=key, by=number)
            return None if row is None else row["v"]
        case "take_or_raise":
            if await tx.fetch_one("kv.take", k=key, by=number) is None:
                raise Changed
            return None
        case "more":
            return await tx.execute("kv.more", k=key, by=number)
        case "write_more":
            return await tx.write("kv.more", k=key, by=number)
        case "many":
            return await tx.execute_many("kv.more", [{"k": k, "by": number} for k in ("a", key)])
        case "raise_all":
            return await tx.execute("kv.raise_all", by=number)
        case "drop":
            return await tx.execute("kv.drop", k=key)
        case "write_drop":
            return await tx.write("kv.drop", k=key)
        case "write_sweep":
            return await tx.write("kv.sweep", below=number)
        case "note":
            return await tx.write("note.add", who=who, k=key, text=str(number))
        case "mark":
            return await tx.write("note.mark", k=key, text=key)
        case "copy":
            return await tx.execute("note.copy", who=who, least=number)
        case "write_copy":
            return await tx.write("note.copy", who=who, least=number)
        case "nul":
            return await tx.write("note.add", who=who, k=None, text="\0")
        case "raise":
            raise Changed
    raise AssertionError(name)


def apply(state: State, program: Program, who: int) -> tuple[State, Outcome]:
    """What a unit makes of a state, alone, and what becomes of it."""
    new = deepcopy(state)
    said: list[Any] = []
    try:
        for name, key, number in program:
            said.append(_model(new, name, key, number, who))
    except (Conflict, PermanentError, Changed) as error:
        return state, type(error).__name__
    return new, said


def _model(state: State, name: str, key: str, number: int, who: int) -> Any:
    kv, quiet = state.kv, name.startswith("write_")
    name = name.removeprefix("write_")
    there = key in kv
    said: Any = None
    match name:
        case "get" | "hold" | "share":
            said = kv.get(key)
        case "range":
            rows = sorted(((-v, k) for k, v in kv.items() if v >= number))[:2]
            said = [(k, -v) for v, k in rows]
        case "all":
            said = sorted(kv.items())
        case "divide":
            if not number:
                raise PermanentError
            said = 1
        case "add" | "add_returning":
            if there:
                raise Conflict
            kv[key] = number
            said = 1 if name == "add" else (key, number + 1)
        case "offer":
            kv.setdefault(key, number)
            said = int(not there)
        case "put":
            kv[key] = number
            said = 1
        case "count":
            said = kv[key] = kv.get(key, 0) + number
        case "set":
            if there:
                kv[key] = number
            said = int(there)
        case "more":
            if there:
                kv[key] += number
            said = int(there)
        case "many":
            said = sum(_model(state, "more", k, number, who) for k in ("a", key))
        case "take" | "take_or_raise":
            if there and kv[key] >= number:
                kv[key] -= number
                said = kv[key]
            elif name == "take_or_raise":
                raise Changed
            if name == "take_or_raise":
                said = None
        case "raise_all":
            for k in kv:
                kv[k] += number
            said = len(kv)
        case "drop":
            kv.pop(key, None)
            said = int(there)
        case "sweep":
            for k in [k for k, v in kv.items() if v < number]:
                del kv[k]
        case "note":
            state.notes.append((who, key, str(number)))
        case "mark":
            state.notes[:] = [(w, k, t + key if k == key else t) for w, k, t in state.notes]
        case "copy":
            found = [(who, k, str(v)) for k, v in sorted(kv.items()) if v >= number]
            state.notes += found
            said = len(found)
        case "nul":
            raise PermanentError
        case "raise":
            raise Changed
        case _:
            raise AssertionError(name)
    return None if quiet else said


def explain(
    start: State, programs: list[Program], outcomes: list[Outcome], end: State
) -> tuple[int, ...] | None:
    """An order in which the units, one after the other, have these outcomes; None: there is none.

    A read may have seen the state before any of the units that come before its own in that order,
    as READ COMMITTED has it: the units of a batch all read before any of them writes.
    """
    for order in permutations(range(len(programs))):
        if _explains(order, start, programs, outcomes, end):
            return order
    return None


def _explains(
    order: tuple[int, ...],
    start: State,
    programs: list[Program],
    outcomes: list[Outcome],
    end: State,
) -> bool:
    states = [start]
    for u in order:
        state, outcome = apply(states[-1], programs[u], u)
        if not _agrees(states, programs[u], u, outcome, outcomes[u]):
            return False
        states.append(state)
    return states[-1].kv == end.kv and sorted(map(str, states[-1].notes)) == sorted(
        map(str, end.notes)
    )


def agree_on_error(program: Program, expected: Outcome, got: Outcome) -> bool:
    """Whether a unit failed as expected; what a write() raises may come after another error."""
    late = any(name in ("nul", "write_add") for name, _, _ in program)
    return expected == got or (late and isinstance(expected, str) and isinstance(got, str))


def _agrees(
    states: list[State], program: Program, who: int, expected: Outcome, got: Outcome
) -> bool:
    if isinstance(expected, str) or isinstance(got, str):
        return agree_on_error(program, expected, got)
    for at, (step, one, other) in enumerate(zip(program, expected, got, strict=True)):
        if one == other:
            continue
        if step[0] not in READS or not any(
            _read_of(state, program, at, who) == other for state in states
        ):
            return False
    return True


def _read_of(state: State, program: Program, at: int, who: int) -> Any:
    """What the read at this place sees when the unit runs on that state."""
    new = deepcopy(state)
    said: Any = None
    try:
        for name, key, number in program[: at + 1]:
            said = _model(new, name, key, number, who)
    except (Conflict, PermanentError, Changed):
        return None
    return said
