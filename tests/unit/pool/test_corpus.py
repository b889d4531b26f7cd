"""Every frame of the corpus is read as its .json says; a client in another language can use it too.

tests/data/pool/{valid,invalid}/NAME.bin is a stream of frames; NAME.json says whose it is and what
comes of it, frame by frame: a message, one that is too large (for a receiver of 1024 bytes), one
that does not fit its receiver, or the end of the connection.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool import codec
from cordata.errors import ProtocolError

CORPUS = Path(__file__).parents[2] / "data/pool"
DECODERS: dict[str, codec.Decoder[Any]] = {
    "client": codec.from_client,
    "child": codec.from_child,
    "worker": codec.from_worker,
    "manager_to_client": codec.to_client,
    "manager_to_child": codec.to_child,
    "manager_to_worker": codec.to_worker,
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
            for frame in splitter.feed(data[at : at + step]):
                seen.append(_one(frame, side))
    except ProtocolError:
        seen.append({"closed": True})
    return seen


def _one(frame: bytes | TooLarge, side: str) -> dict[str, Any]:
    if isinstance(frame, TooLarge):
        said = {"length": frame.length, "t": frame.kind, "id": frame.id}
        return {"too_large": said | {"goes_on": frame.skippable}}
    try:
        message = DECODERS[side].decode(frame)
    except codec.UnfitMessage as error:
        return {"unfit": {"t": error.kind, "id": error.id}}
    # Through our own encoder, so that it is proven as well.
    return {"message": plain(msgspec.msgpack.decode(codec.encode(message)[4:]))}


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


def test_corpus_has_both_kinds() -> None:
    assert len([path for path in FILES if path.parent.name == "valid"]) >= 50
    assert len([path for path in FILES if path.parent.name == "invalid"]) >= 45
