"""Google Ads: the lead forms of an ad.

{"lead_id", "user_column_data": [{"column_id": "FULL_NAME", "column_name", "string_value"}],
 "form_id", "campaign_id", "google_key", "is_test", "gcl_id"}
"""

from __future__ import annotations

import json

from alpinehub.webhooks.submission import (
    FormField,
    Submission,
    Unreadable,
    check_count,
    id_text,
    load_object,
    text_of,
)
from alpinehub.webhooks.values import read_yes


def take_key(body: bytes) -> tuple[str, bytes]:
    """The key in a body, and the body without it: it is a secret and must not be stored.

    Raises: Unreadable if there is none.
    """
    document = load_object(body)
    key = document.get("google_key")
    if not isinstance(key, str) or not key:
        raise Unreadable("no_key")
    try:
        # As ASCII, because UTF-8 cannot encode a lone surrogate: a lead must not be lost for it.
        return key, json.dumps({**document, "google_key": ""}).encode()
    except RecursionError:
        raise Unreadable("not_json") from None


def read(body: bytes) -> Submission:
    """The lead in a body. Raises: Unreadable."""
    document = load_object(body)
    campaign = id_text(document.get("campaign_id"))
    return Submission(
        answers=tuple(_answers(document.get("user_column_data"))),
        form_key=id_text(document.get("form_id")),
        external_id=id_text(document.get("lead_id")) or None,
        utm={"source": "google", **({"campaign": campaign} if campaign else {})},
        gclid=id_text(document.get("gcl_id"), 1024),
        ignored="test" if read_yes(text_of(document.get("is_test"))) else "",
    )


def _answers(columns: object) -> list[FormField]:
    """The answers to questions of Google's (they have an id), or of the advertiser."""
    if not isinstance(columns, list):
        return []
    check_count(len(columns))
    return [
        FormField(
            id_text(one.get("column_id")),
            id_text(one.get("column_name"), 200),
            text_of(one.get("string_value")),
        )
        for one in columns
        if isinstance(one, dict)
    ]
