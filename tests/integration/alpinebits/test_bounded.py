"""What somebody else writes is read once: nothing makes the reader begin again and again.

A reader that begins again needs minutes for each of these: longer than the limit of `python`.
"""

from __future__ import annotations

import pytest
from tests.integration.cli.command import python

_PAGE = """
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.http import HttpResponse
from alpinehub.alpinebits_client.reply import read_reply
answer = HttpResponse(status=200, headers={}, body=b"<html>" + b"<title" * 1_000_000, took_ms=0)
print(read_reply(answer, "OTA_PingRS", PROTOCOLS["2024-10"]).text)
"""
_ADDRESS = """
from alpinehub.alpinebits.grammar.schema import takes
print(takes("email", "@" * 500_000 + " "), takes("email", "a@" * 500_000))
"""
_MISTAKES = """
from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.rules.freerooms import COUNTS
from alpinehub.alpinebits.reader import read_here
from alpinehub.alpinebits.transport_error import TransportError
begin = f'<{COUNTS.root} xmlns="{NAMESPACE}" Version="4"><Inventories HotelCode="H1">'
document = begin + '<Inventory a="" b=""/>' * 390_000 + f"</Inventories></{COUNTS.root}>"
try:
    read_here(document.encode(), PROTOCOLS["2024-10"], COUNTS)
except TransportError as error:
    print(error)
"""
_ANSWER = """
from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits_client.http import HttpResponse
from alpinehub.push.delivery import read_answer
begin = f'<OTA_HotelResNotifRS xmlns="{NAMESPACE}"><Success/><Warnings>{"x" * 100_000}'
body = begin + '<Warning a=""/>' * 250_000 + "</Warnings></OTA_HotelResNotifRS>"
answer = HttpResponse(status=200, headers={}, body=body.encode(), took_ms=0)
print(read_answer(answer, []).accepted)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (_PAGE, "a web page instead of AlpineBits\n"),
        (_ADDRESS, "False True\n"),
        (
            _MISTAKES,
            "the request does not conform to the schema: Inventory/@a is not allowed\n",
        ),
        (_ANSWER, "()\n"),
    ],
    ids=[
        "page of half-written titles",
        "address of nothing but @",
        "the same mistake everywhere",
        "answer to a push with nothing but mistakes",
    ],
)
def test_document_is_read_once(code: str, said: str) -> None:
    done = python("-c", code)
    assert (done.stdout, done.stderr) == (said, "")
