"""Shared by `alpinehub pms` and `alpinehub check`: options, the client made of them, exit codes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import IO, Any, TypeVar

import click

from alpinehub.alpinebits.protocol import NEWEST, PROTOCOLS
from alpinehub.alpinebits_client.address import InvalidUrl, is_local, parse_url, read_address
from alpinehub.alpinebits_client.client import AlpineBitsClient, Login
from alpinehub.alpinebits_client.http import HttpClient, RequestFailed
from alpinehub.cli.session import first_line
from cordata.terminal import add_options, printable, show_json, traceback_option

T = TypeVar("T")

#: The server cannot be reached, or its answer is not AlpineBits.
EXIT_TRANSPORT = 3
PASSWORD_VARIABLE = "ALPINEHUB_PASSWORD"


class TransportFailed(click.ClickException):
    """The server gave no AlpineBits answer."""

    exit_code = EXIT_TRANSPORT

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error in the form of all errors of the command."""
        click.echo(f"error: {printable(self.message)}", file=file, err=True)
        if self.hint:
            click.echo(f"hint: {self.hint}", file=file, err=True)


#: How `HttpClient` calls a server.
transport_options = add_options(
    click.option(
        "--timeout",
        type=click.FloatRange(0.1, 3600),
        default=30.0,
        show_default=True,
        help="Seconds for the connection, and again for the request and its answer.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False),
        help="Certificates to trust in addition to the system's.",
    ),
    click.option("--insecure", is_flag=True, help="Trust any certificate. For tests."),
    traceback_option,
)
#: Those of `make_client` except the URL and the version.
server_options = add_options(
    click.option("--user", required=True, help="The login of the hotel software."),
    click.option(
        "--password-file",
        type=click.File("r"),
        help="Read the password from the first line of a file; - is standard input.  "
        f"[default: the variable {PASSWORD_VARIABLE}, else asked for]",
    ),
    click.option("--client-id", default="", help="X-AlpineBits-ClientID.  [default: none]"),
    transport_options,
)
version_option = click.option(
    "--version",
    "protocol",
    type=click.Choice(list(PROTOCOLS)),
    default=NEWEST.name,
    show_default=True,
    help="The AlpineBits version.",
)


def make_client(
    *,
    url: str,
    user: str,
    password_file: IO[str] | None,
    client_id: str,
    timeout: float,
    ca_file: str | None,
    insecure: bool,
    protocol: str = "",
) -> AlpineBitsClient:
    """Make the client; warns on stderr if the URL has no TLS. Raises: UsageError."""
    try:
        where = parse_url(url)
    except InvalidUrl as error:
        raise click.UsageError(str(error)) from None
    for name, value in (("user", user), ("client id", client_id)):
        if not (value.isprintable() and (name == "user" or value.isascii())):
            raise click.UsageError(f"the {name} has a character that a header cannot carry")
    if ":" in user:
        raise click.UsageError("the user must not contain a colon")
    if not where.secure and not _is_local_host(where.host):
        click.echo(
            f"warning: {where.redacted} has no TLS: the password is sent unencrypted", err=True
        )
    login = Login(
        url=where,
        user=user,
        password=read_hidden("password", password_file, PASSWORD_VARIABLE),
        protocol=PROTOCOLS[protocol or NEWEST.name],
        client_id=client_id,
    )
    http = HttpClient(timeout_s=timeout, ca_file=ca_file, insecure=insecure)
    return AlpineBitsClient(login=login, http=http)


def _is_local_host(host: str) -> bool:
    try:
        return is_local(read_address(host))
    except ValueError:
        return host == "localhost"


def read_hidden(what: str, file: IO[str] | None, variable: str) -> str:
    """A password or secret from a file, the environment or the terminal; never an argument, which
    all users of the machine can read. Raises: UsageError.
    """
    if file is not None:
        if line := first_line(file):
            return line
        raise click.UsageError(f"{file.name} contains no {what}")
    line = os.environ.get(variable, "")
    if not line and sys.stdin.isatty():
        line = str(click.prompt(what.capitalize(), hide_input=True, err=True))
    if not line:
        raise click.UsageError(f"no {what}: set {variable} or give --{what}-file")
    return line


def converse(talk: Coroutine[Any, Any, T], json_: bool) -> T:
    """Run requests to a server. Raises: TransportFailed, printed as JSON before if `json_`."""
    try:
        return asyncio.run(talk)
    except RequestFailed as error:
        if json_:
            record = {"outcome": "unreachable", "reason": error.kind, "text": str(error)}
            show_json(record, one_line=True)
        raise TransportFailed(str(error), error.hint) from None
