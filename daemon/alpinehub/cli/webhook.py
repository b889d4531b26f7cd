"""`alpinehub webhook send`: sends submissions to this hub or any other, as a form would."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import IO
from urllib.parse import quote
from uuid import uuid4

import click

from alpinehub.alpinebits_client.address import InvalidUrl, Url, parse_url
from alpinehub.alpinebits_client.http import HttpClient, HttpResponse
from alpinehub.cli.peer import converse, read_hidden, transport_options
from alpinehub.cli.sample import LANGUAGES, ODD_KINDS, Sample, sample
from alpinehub.cli.session import as_json
from alpinehub.sources import KINDS, path_of
from cordata.terminal import Group, printable, show_json

SECRET_VARIABLE = "ALPINEHUB_SECRET"
_SHOWN = 500


@click.group(cls=Group)
def webhook() -> None:
    """Act as a form: send submissions to a hub."""


@webhook.command(
    short_help="Send a submission, and show the answer.",
    examples="""
        export ALPINEHUB_SECRET=demo-wix-0123456789012
        alpinehub webhook send wix --url http://127.0.0.1:8080 --hotel DEMO
        alpinehub webhook send wix --url http://127.0.0.1:8080 --hotel DEMO --file submission.json
    """,
    exit_codes="0 accepted, 1 refused, 2 wrong usage, 3 no answer",
)
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--url", required=True, help="The hub, without a path: https://hub.example.")
@click.option("--hotel", required=True, metavar="CODE", help="The hotel of the source.")
@click.option(
    "--secret-file", type=click.File("r"),
    help="Read the secret from the first line of a file; - is standard input.  "
    f"[default: the variable {SECRET_VARIABLE}, else asked for]",
)  # fmt: skip
@click.option("--file", "file", type=click.File("rb"), help="Send this body instead of a sample.")
@click.option("--content-type", help="Content type of --file.  [default: that of the kind]")
@click.option(
    "--language", type=click.Choice(LANGUAGES), default="de", show_default=True,
    help="Language of the sample's labels and of its guest.",
)  # fmt: skip
@click.option("--id", "id_", help="Id of the sample; sent twice, the second is a duplicate.")
@click.option(
    "--odd", is_flag=True,
    help="A sample that the hub does not pass on: for google a test lead, for form one filled in by"
    " a robot.",
)  # fmt: skip
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Number of samples, each with another id.",
)
@transport_options
@as_json
def send(
    kind: str,
    url: str,
    hotel: str,
    secret_file: IO[str] | None,
    file: IO[bytes] | None,
    content_type: str | None,
    language: str,
    id_: str | None,
    odd: bool,
    count: int,
    timeout: float,
    ca_file: str | None,
    insecure: bool,
    json_: bool,
) -> int:
    """Send a submission, as a form of this kind would, and show the hub's answer.

    A sample has a guest who does not exist, a stay of a week in a month's time, and a new id. With
    --json each answer is one line. The secrets of the demo hotel are demo, demo-wix-0123456789012,
    demo-google-0123456789012 and demo-form-0123456789012.
    """
    if odd and kind not in ODD_KINDS:
        raise click.UsageError(f"--odd is for the kinds {' and '.join(ODD_KINDS)} only")
    if file is not None and (odd or id_ is not None):
        raise click.UsageError("--odd and --id change the sample: leave them out with --file")
    if file is None and content_type is not None:
        raise click.UsageError("--content-type is for --file only")
    secret = read_hidden("secret", secret_file, SECRET_VARIABLE)
    if not secret.isascii() or not secret.isprintable():
        raise click.UsageError("a secret must consist of visible ASCII characters")
    where, headers = _target(url, kind, hotel, secret)
    given = file.read() if file is not None else None
    http = HttpClient(timeout_s=timeout, ca_file=ca_file, insecure=insecure)
    refused = False
    for _ in range(count):
        made = sample(
            kind,
            hotel=hotel,
            language=language,
            number=id_ or str(uuid4()),
            secret=secret,
            today=datetime.now(UTC).date(),
            odd=odd,
        )
        if given is not None:
            made = Sample(content_type or made.content_type, given)
        sent = {**headers, "Content-Type": made.content_type}
        answer = converse(http.call(where, sent, made.body), json_)
        refused |= answer.status >= 400
        _show(kind, answer, secret, json_)
    return 1 if refused else 0


def _target(url: str, kind: str, hotel: str, secret: str) -> tuple[Url, dict[str, str]]:
    """The URL and the headers of a submission. Raises: click.UsageError."""
    headers = {"Accept": "*/*"}
    if kind == "generic":
        headers["X-Webhook-Secret"] = secret
    try:
        return parse_url(url.rstrip("/") + path_of(kind, hotel, secret)), headers
    except InvalidUrl as error:
        raise click.UsageError(str(error)) from None


def _show(kind: str, answer: HttpResponse, secret: str, json_: bool) -> None:
    """Print the answer. The secret is replaced by `...`: a server may repeat it in the body, and
    quoted in the path of the Location header.
    """
    text = answer.body.decode("utf-8", "replace").replace(secret, "...")[:_SHOWN]
    location = answer.headers.get("location")
    if location is not None:
        location = location.replace(secret, "...").replace(quote(secret), "...")
    record = {
        "kind": kind,
        "status": answer.status,
        "took_ms": answer.took_ms,
        "location": location,
        "body": text,
    }
    if json_:
        show_json(record, one_line=True)
        return
    to = f" to {location}" if location else ""
    shown = printable(" ".join(text.split()))
    click.echo(f"{kind}: {answer.status}{printable(to)} in {answer.took_ms} ms  {shown}".rstrip())
