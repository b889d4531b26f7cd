"""A refusal: the status, code and sentence of an error body, and every problem of the payload."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

#: More than this many problems of one payload help nobody; the rest is counted.
MAX_PROBLEMS = 100


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a payload. It names the field, and never repeats its value."""

    #: Path in the payload (`children[2]`); "" is the payload as a whole.
    field: str
    problem: str


class HttpError(Exception):
    """The request is answered with an error; nothing of it was stored."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        problems: list[Problem] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        page: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.problems = problems or []
        self.headers = headers
        #: HTML for the browser of a guest, in place of the JSON.
        self.page = page


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The JSON of every error."""

    error: str
    message: str
    problems: list[Problem]
    request_id: str


_encode = msgspec.json.Encoder().encode


def error_body(refused: HttpError, request_id: str) -> bytes:
    """The JSON body of a refusal."""
    problems = refused.problems
    if len(problems) > MAX_PROBLEMS:
        more = Problem("", f"and {len(problems) - MAX_PROBLEMS} more problems")
        problems = [*problems[:MAX_PROBLEMS], more]
    return _encode(ErrorBody(refused.code, refused.message, problems, request_id))


def invalid(problems: list[Problem]) -> HttpError:
    """The 422 for a payload that was understood as JSON but cannot be used."""
    fields = ", ".join(dict.fromkeys(p.field for p in problems[:5] if p.field))
    message = "The payload is not valid" + (f": see {fields}." if fields else ".")
    return HttpError(422, "invalid", message, problems)
