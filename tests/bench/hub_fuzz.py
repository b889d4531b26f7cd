"""The hub under any input, for a while: `hub_fuzz SECONDS`, for each part.

properties ... tests of the hub that draw what they look at, with new seeds again and again: what a
               webhook accepts is sent or held in each version; forms; rates and free rooms
messages ..... the sample messages, changed at random: the grammars take what the schemas take, what
               is taken of a push is told again in each version, valid
atheris ...... looks at the branches that an input takes: forms, XML, webhooks. Without it these
               are left out, with a word

A part ends with an error at the first finding, and says what it was.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import settings

#: What is drawn from tests.integration.alpinebits.payloads, in each round.
_EXAMPLES = "4"
_MUTANTS = 20
PROPERTIES = (
    "integration.alpinebits.test_accepted",
    "integration.hub.test_either",
    "unit.alpinebits.test_anything",
    "unit.alpinebits.test_overlay_model",
    "unit.alpinebits.test_room_counts",
    "unit.alpinebits.test_moment",
    "unit.hub.test_interpretation",
    "unit.hub.test_payload",
)
_HEADERS = (b"multipart/form-data; boundary=B", b"application/x-www-form-urlencoded", b"text/xml")


def properties(seconds: float) -> None:
    """Each in turn until the time is over."""
    os.environ["EXAMPLES"] = _EXAMPLES
    logging.disable()  # what is held is told, each time
    settings.register_profile("fuzz", database=None, deadline=None)
    settings.load_profile("fuzz")
    tests = [test for name in PROPERTIES for test in _drawing(f"tests.{name}")]
    ends, rounds, order = time.monotonic() + seconds, 0, random.Random()
    while time.monotonic() < ends:
        order.shuffle(tests)
        for test in tests:
            if time.monotonic() < ends:
                test()
        rounds += 1
    print(f"properties: {len(tests)} of them, in turn, {rounds} times")


def _drawing(module: str) -> Iterator[Callable[[], None]]:
    """The tests of a module that take nothing but what Hypothesis draws."""
    for name, found in vars(importlib.import_module(module)).items():
        if name.startswith("test_") and getattr(found, "is_hypothesis_test", False):
            yield found


def messages(seconds: float) -> None:
    """Mutants of all samples until the time is over."""
    from tests.integration.alpinebits import material
    from tests.integration.alpinebits.mutants import mutants
    from tests.integration.alpinebits.test_grammar import SAMPLES, agree
    from tests.integration.alpinebits.test_project import holds

    from alpinehub.alpinebits.protocol import PROTOCOLS

    if not material.is_there():
        print(f"messages: left out, there are no schemas in {material.OFFICIAL}")
        return
    ends, count, valid, order = time.monotonic() + seconds, 0, 0, random.Random()
    while time.monotonic() < ends:
        seed, path = order.randrange(2**32), order.choice(SAMPLES)
        for mutant in mutants(path.read_bytes(), _MUTANTS, seed=seed):
            count += 1
            valid_in = [own for own in PROTOCOLS.values() if agree(mutant, own.name)]
            valid += len(valid_in)
            for own in valid_in:
                _read(mutant, own.name)
            if valid_in:
                holds(mutant, valid_in)
    print(f"messages: {count} mutants, {valid} times valid in a version")


def _read(mutant: Any, version: str) -> None:
    """A reader says what it says, or what is wrong; what is stored of it is itself valid."""
    from lxml import etree

    from alpinehub.alpinebits.actions.handshake import ECHO
    from alpinehub.alpinebits.actions.inventory import CONTENT_REQUEST
    from alpinehub.alpinebits.actions.rate_plans import BASE_RATES_REQUEST
    from alpinehub.alpinebits.actions.read import READ_REQUEST
    from alpinehub.alpinebits.actions.status import STATUSES
    from alpinehub.alpinebits.large import READERS
    from alpinehub.alpinebits.protocol import PROTOCOLS
    from alpinehub.alpinebits.reader import Reader, read_here

    others: tuple[Reader[Any], ...] = (
        ECHO,
        READ_REQUEST,
        CONTENT_REQUEST,
        BASE_RATES_REQUEST,
        STATUSES,
    )
    root = etree.QName(mutant).localname
    for reader in (*READERS.values(), *others):
        if reader.root == root:
            _keep(root, read_here(etree.tostring(mutant), PROTOCOLS[version], reader))


def _keep(root: str, told: Any) -> None:
    """What becomes of a push of which nothing is wrong."""
    from alpinehub.alpinebits.large import StoredContent, convert
    from alpinehub.alpinebits.protocol import PROTOCOLS
    from alpinehub.alpinebits.rules import room_counts
    from alpinehub.alpinebits.rules.overlay import TooLarge, apply_overlay

    if root in ("OTA_HotelAvailNotifRQ", "OTA_HotelInvCountNotifRQ"):
        rooms = room_counts.apply_complete_set(told.rooms)
        assert room_counts.decode(room_counts.encode(rooms)) == rooms
    if root == "OTA_HotelRatePlanNotifRQ" and not told.findings:
        for one in told.plans:
            try:
                body = apply_overlay(one.body, one.body)
            except TooLarge:
                continue
            content = b"<RatePlans>%b</RatePlans>" % body
            for version in PROTOCOLS:
                convert(
                    StoredContent(
                        response="OTA_HotelRatePlanRS",
                        content=content,
                        code="H",
                        name="H",
                        protocol=version,
                    )
                )


def forms(data: bytes) -> None:
    """The body of a request of hotel software; the first byte says which kind."""
    from alpinehub.alpinebits.transport import parse_form, unpack
    from alpinehub.alpinebits.transport_error import TransportError

    logging.disable()
    kind, body = (data[0] if data else 0), data[1:]
    try:
        if kind >= 128:
            body = unpack(body, "gzip")
        parse_form(_HEADERS[kind % len(_HEADERS)].decode(), body)
    except TransportError:
        pass


def documents(data: bytes) -> None:
    """A document; the first byte says in which version, and of which request."""
    from alpinehub.alpinebits.large import READERS
    from alpinehub.alpinebits.protocol import PROTOCOLS
    from alpinehub.alpinebits.reader import read_here
    from alpinehub.alpinebits.transport_error import TransportError

    kind = data[0] if data else 0
    protocol = list(PROTOCOLS.values())[kind % len(PROTOCOLS)]
    reader = list(READERS.values())[kind // len(PROTOCOLS) % len(READERS)]
    try:
        read_here(data[1:], protocol, reader)
    except TransportError:
        pass


def webhooks(data: bytes) -> None:
    """What a website sends; the first byte says which kind of source."""
    from tests.integration.alpinebits.test_accepted import HOTEL, MAPPING

    from alpinehub.webhooks.endpoint import WebhookError
    from alpinehub.webhooks.generic import normalise, parse
    from alpinehub.webhooks.interpretation import Mapped, Received, interpret

    logging.disable()
    kind, body = (data[0] if data else 0), data[1:]
    if kind % 4 == 3:
        try:
            normalise(parse(body))
        except WebhookError:
            pass
        return
    content_type = _HEADERS[kind % 8 // 4].decode()
    source = ("wix", "google", "form")[kind % 4]
    received = Received(kind=source, body=body, content_type=content_type, honeypot="website_url")
    found = interpret(received, MAPPING, HOTEL)
    if isinstance(found, Mapped):
        _write(found.data)


def _write(data: Any) -> None:
    """In each version valid, or held by name."""
    from tests.integration.alpinebits.test_accepted import HOTEL

    from alpinehub.alpinebits.guest import StoredVersion, Undeliverable, render, validate
    from alpinehub.alpinebits.protocol import PROTOCOLS
    from alpinehub.reservations import decode, encode

    record = StoredVersion(
        id="6b34fe24ac2ff8106b34fe24ac2ff810",
        res_status="Reserved" if data.status == "reservation" else "Requested",
        data=decode(encode(data)),
        external_id="",
        source="website",
        created_at=1_767_360_387_938_000,
        changed_at=1_767_360_387_938_001,
    )
    for protocol in PROTOCOLS.values():
        try:
            made = render(record, HOTEL, protocol)
        except Undeliverable:
            continue
        validate(made, protocol)


def seeds(target: str) -> list[bytes]:
    """Where atheris begins."""
    from tests.integration.alpinebits import material

    if target == "forms":
        part = b'--B\r\nContent-Disposition: form-data; name="action"\r\n\r\nx\r\n--B--\r\n'
        return [b"\x00" + part, b"\x01action=x&request=%3Ca%2F%3E"]
    if target == "documents":
        paths = material.samples("messages/*/*RQ*.xml")
        small = [path.read_bytes() for path in paths if path.stat().st_size < 5000]
        return [bytes([kind]) + text for kind in range(0, 30, 7) for text in small]
    return [
        b'\x00{"data":{"submissionId":"1","field:email_1":"a@b.c","field:date_picker_1":"1.2.2027"}}',
        b'\x01{"lead_id":"1","user_column_data":[{"column_id":"EMAIL","string_value":"a@b.c"}]}',
        b"\x06email=a%40b.c&arrival=2027-02-01&departure=8.2.2027&adults=2",
        b'\x03{"hotel_code":"H","status":"request","arrival":"2027-02-01","adults":2}',
    ]


PARTS: dict[str, Callable[[float], None]] = {"properties": properties, "messages": messages}
TARGETS: dict[str, Callable[[bytes], None]] = {
    "forms": forms,
    "documents": documents,
    "webhooks": webhooks,
}


def under_atheris(target: str, seconds: int, corpus: str) -> None:
    """Never returns: libFuzzer ends the process."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["alpinehub", "python_multipart"]):
        TARGETS[target](b"\x00x")  # what is to be watched must be imported here first
        TARGETS[target](b"\x03x")
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-verbosity=0", corpus], TARGETS[target]
    )
    atheris.Fuzz()


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    if len(sys.argv) > 3:
        under_atheris(sys.argv[2], seconds, sys.argv[3])
    wanted = sys.argv[2:3] or [*PARTS, *TARGETS]
    for name in wanted:
        if name in PARTS:
            PARTS[name](seconds)
    if importlib.util.find_spec("atheris") is None:
        print("atheris: left out, it cannot be installed for this Python")
        return 0
    for target in [name for name in wanted if name in TARGETS]:
        with tempfile.TemporaryDirectory() as corpus:
            for n, seed in enumerate(seeds(target)):
                (Path(corpus) / str(n)).write_bytes(seed)
            command = [sys.executable, "-m", "tests.bench.hub_fuzz", str(seconds), target, corpus]
            result = subprocess.run(command, env=os.environ, check=False)
        print(f"{target}: {'nothing found' if result.returncode == 0 else 'FAILED'}")
        if result.returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
