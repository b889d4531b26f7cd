"""Every frame of the corpus is read as its .json says; a client in another language can use it too.

tests/data/pool/{valid,invalid}/NAME.bin is a stream of frames; NAME.json says whose it is and what
comes of it, frame by frame: a message, one that is too large (for a receiver of 1024 bytes), one
that does not fit its receiver, or the end of the connection.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cordata.core import frame
from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool import codec, message, order
from cordata.core.pool.message import Delta, Message
from cordata.core.pool.order import GlobalsCopy, SessionCopy
from cordata.errors import ProtocolError

CORPUS = Path(__file__).parents[2] / "data/pool"
DECODERS: dict[str, codec.Decoder[Any]] = {
    "client": codec.from_client,
    "child": codec.from_child,
    "worker": codec.from_worker,
    "manager_to_client": codec.to_client,
    "manager_to_child": codec.to_child,
    "borrower": codec.to_borrowed,
    "manager_to_worker": codec.to_worker,
    "worker_to_child": codec.worker_to_child,
    "child_to_worker": codec.child_to_worker,
}
FILES = sorted(CORPUS.glob("*/*.bin"))
#: The only file whose frame is larger than the limit that it is read with on purpose.
SMALL, LARGE = 1024, 200_000


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, "hex": bytes(value.data).hex()}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def outcome_of(data: bytes, side: str, max_bytes: int, step: int) -> list[dict[str, Any]]:
    splitter, seen = Splitter(max_bytes), []
    try:
        for at in range(0, len(data), step):
            for one in splitter.feed(data[at : at + step]):
                seen.append(_one(one, side))
    except ProtocolError:
        seen.append({"closed": True})
    return seen


def _one(found: bytes | TooLarge, side: str) -> dict[str, Any]:
    if isinstance(found, TooLarge):
        head = {"length": found.length, "t": found.kind, "id": found.id}
        return {"too_large": head | {"goes_on": found.skippable}}
    try:
        said = DECODERS[side].decode(found)
    except codec.UnfitMessage as error:
        return {"unfit": {"t": error.kind, "id": error.id}}
    # Through our own encoder, so that it is proven as well.
    return {"message": plain(msgspec.msgpack.decode(codec.encode(said)[4:]))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_frame_is_read_as_its_json_says(path: Path) -> None:
    said = json.loads(path.with_suffix(".json").read_text())
    data = path.read_bytes()
    limit = LARGE if path.stem == "deep-nesting" else SMALL
    for step in (len(data), 1 if len(data) < 10_000 else 777):
        assert without_defaults(outcome_of(data, said["from"], limit, step)) == without_defaults(
            said["outcome"]
        )


def without_defaults(outcome: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Defaults may be sent or left out; those that the corpus sends are these."""
    defaults = {("v", 1), ("vmin", 1), ("max", 16777216), ("inv", ""), ("a", 0), ("p", None)}
    return [{kind: _less(said, defaults) for kind, said in one.items()} for one in outcome]


def _less(said: Any, defaults: set[tuple[str, Any]]) -> Any:
    if not isinstance(said, dict):
        return said
    return {
        key: value
        for key, value in said.items()
        if isinstance(value, list | dict) or (key, value) not in defaults
    }


KINDS = {
    str(kind.__struct_config__.tag): kind
    for module in (message, order)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
}


def test_corpus_has_every_type_of_message() -> None:
    found = set()
    for path in FILES:
        if path.parent.name == "valid":
            frames = Splitter().feed(path.read_bytes())
            bodies = [one[4:] for one in frames if not isinstance(one, TooLarge)]
            found |= {msgspec.msgpack.decode(body)["t"] for body in bodies}
    assert found == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_protocol_names_every_key_of_every_message(kind: str) -> None:
    """A client in another language is written by it: see tests/integration/pool/foreign.pl."""
    told = frame.__doc__ or ""
    names = {field.encode_name for field in msgspec.structs.fields(KINDS[kind])} - {"read_at"}
    for part in (SessionCopy, GlobalsCopy) if kind == "run" else (Delta,):
        if kind in ("run", "result", "end"):
            names |= {field.encode_name for field in msgspec.structs.fields(part)}
    missing = [name for name in (kind, *names) if not re.search(rf"\b{name}\b", told)]
    assert not missing


def test_protocol_names_every_code_of_an_error() -> None:
    told = frame.__doc__ or ""
    codes = set(codec.POOL_ERRORS) - {"unavailable"}  # a client's own: nobody answered
    assert not [code for code in codes if not re.search(rf"\b{code}\b", told)]


def test_corpus_has_both_kinds() -> None:
    assert len([path for path in FILES if path.parent.name == "valid"]) >= 50
    assert len([path for path in FILES if path.parent.name == "invalid"]) >= 45
