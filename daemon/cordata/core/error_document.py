"""The JSON body of the runtime's own error responses."""

from __future__ import annotations

import json


def error_document(code: str, message: str, request_id: str, **more: str) -> bytes:
    """{"error": CODE, "message": SENTENCE, "request_id": ID} and `more`, as one line.

    `code` is stable, for programs; `message` is for people.
    """
    document = {"error": code, "message": message, "request_id": request_id, **more}
    return json.dumps(document).encode() + b"\n"
