"""Messages to frames and back; whatever bytes come in, only ProtocolError comes out."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import DecodeError, ValidationError, msgpack

from cordata.core.frame import HEAD, head_of, pack
from cordata.core.pool.message import FromClient, Message, ToClient
from cordata.core.pool.order import (
    ChildToWorker,
    FromChild,
    FromWorker,
    ToBorrowed,
    ToChild,
    ToWorker,
    WorkerToChild,
)
from cordata.errors import (
    FrameTooLarge,
    PoolError,
    PoolPermanent,
    PoolTransient,
    ProtocolError,
)

M = TypeVar("M")
_body = msgpack.Encoder().encode

#: What an `error` frame becomes at the client, by its code.
POOL_ERRORS: dict[str, type[PoolError]] = {
    kind.code: kind
    for family in (PoolError, PoolTransient, PoolPermanent)
    for kind in family.__subclasses__()
    if kind not in (PoolTransient, PoolPermanent)
}


class UnfitMessage(ProtocolError):
    """A whole frame that is no message its receiver knows; the stream goes on after it."""

    def __init__(self, message: str, *, kind: str = "", id: int | None = None) -> None:
        super().__init__(message)
        #: `t` and `id` of the frame, as far as they could be read.
        self.kind = kind
        self.id = id


class Decoder(Generic[M]):
    """Decodes the messages of one direction."""

    __slots__ = ("_decode",)

    def __init__(self, kinds: Any) -> None:
        self._decode = msgpack.Decoder(kinds).decode

    def decode(self, frame: bytes) -> M:
        """The message of a whole frame, head included; its payload stays a view into `frame`.

        Raises: UnfitMessage when it is a map, but no message of this direction; ProtocolError
        when it is no MessagePack map at all, after which the connection ends.
        """
        try:
            return self._decode(memoryview(frame)[HEAD:])  # type: ignore[no-any-return]
        except ValidationError as error:
            if not _is_map(frame):
                raise ProtocolError(f"no map: {error}") from None
            kind, number = head_of(frame[HEAD : HEAD + 256])
            raise UnfitMessage(str(error), kind=kind, id=number) from None
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"no MessagePack: {error}") from None


def encode(message: Message, *, max_bytes: int | None = None) -> bytes:
    """The frame of a message. Raises: FrameTooLarge when its body is longer than `max_bytes`."""
    # Into a buffer of our own it takes four times as long: the buffer is cut and grown each time.
    body = _body(message)
    if max_bytes is not None and len(body) > max_bytes:
        raise FrameTooLarge(
            f"a frame of {len(body)} bytes, where {max_bytes} are taken (max_frame_bytes)",
            length_bytes=len(body),
            limit_bytes=max_bytes,
        )
    return pack(body)


def _is_map(frame: bytes) -> bool:
    first = frame[HEAD] if len(frame) > HEAD else 0
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


from_client: Decoder[FromClient] = Decoder(FromClient)
from_child: Decoder[FromChild] = Decoder(FromChild)
from_worker: Decoder[FromWorker] = Decoder(FromWorker)
to_client: Decoder[ToClient] = Decoder(ToClient)
to_child: Decoder[ToChild] = Decoder(ToChild)
to_borrowed: Decoder[ToBorrowed] = Decoder(ToBorrowed)
to_worker: Decoder[ToWorker] = Decoder(ToWorker)
worker_to_child: Decoder[WorkerToChild] = Decoder(WorkerToChild)
child_to_worker: Decoder[ChildToWorker] = Decoder(ChildToWorker)
