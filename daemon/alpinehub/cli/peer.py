"""What `alpinehub pms` and `alpinehub check` share: which server, as whom; how failures end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import IO, Any, TypeVar

import click

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.address import InvalidUrl, Url, is_local, parse_url, read_address
from alpinehub.alpinebits_client.client import AlpineBitsClient, Login
from alpinehub.alpinebits_client.http import HttpClient, RequestFailed
from alpinehub.cli.session import first_line
from cordata.terminal import printable

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: The server cannot be reached, or what it answers is no AlpineBits.
EXIT_TRANSPORT = 3
PASSWORD_VARIABLE = "ALPINEHUB_PASSWORD"


class TransportFailed(click.ClickException):
    """There was no answer of AlpineBits."""

    exit_code = EXIT_TRANSPORT

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """As every other error of the command looks."""
        click.echo(f"error: {printable(self.message)}", err=True)
        if self.hint:
            click.echo(f"hint: {self.hint}", err=True)


class Failed(click.ClickException):
    """What failed is printed already."""

    def __init__(self) -> None:
        super().__init__("it failed")

    def show(self, file: IO[Any] | None = None) -> None:
        """Nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The options that say which server is asked, as whom and how."""

    url: Url
    user: str
    password: str
    protocol: str
    client_id: str
    http: HttpClient

    def client(self) -> AlpineBitsClient:
        """A conversation in the version of the options."""
        login = Login(
            url=self.url,
            user=self.user,
            password=self.password,
            protocol=PROTOCOLS[self.protocol],
            client_id=self.client_id,
        )
        return AlpineBitsClient(login=login, http=self.http)


def server_options(function: F) -> F:
    """Add --user, the password's and the transport's options; all are in `Server`, with the URL."""
    options = (
        click.option("--user", required=True, help="The login of the hotel software."),
        click.option(
            "--password-file",
            type=click.File("r"),
            help="Read the password from the first line of a file; - is standard input.  "
            f"[default: the variable {PASSWORD_VARIABLE}, else asked for]",
        ),
        click.option("--client-id", default="", help="X-AlpineBits-ClientID.  [default: none]"),
        click.option(
            "--timeout",
            type=click.FloatRange(0.1, 3600),
            default=30.0,
            show_default=True,
            help="Seconds for one request with its answer.",
        ),
        click.option(
            "--ca-file",
            type=click.Path(exists=True, dir_okay=False),
            help="Certificates to trust beside the system's.",
        ),
        click.option("--insecure", is_flag=True, help="Trust any certificate. For trying out."),
    )
    for option in reversed(options):
        function = option(function)
    return function


version_option = click.option(
    "--version",
    "protocol",
    type=click.Choice(list(PROTOCOLS)),
    default=list(PROTOCOLS)[-1],
    show_default=True,
    help="The AlpineBits version.",
)


def make_server(
    *,
    url: str,
    user: str,
    password_file: IO[str] | None,
    client_id: str,
    timeout: float,
    ca_file: str | None,
    insecure: bool,
    protocol: str = "",
) -> Server:
    """From the options. Raises: UsageError."""
    try:
        where = parse_url(url)
    except InvalidUrl as error:
        raise click.UsageError(str(error)) from None
    for name, value in (("user", user), ("client id", client_id)):
        if not (value.isprintable() and (name == "user" or value.isascii())):
            raise click.UsageError(f"the {name} holds a character that no header can carry")
    if ":" in user:
        raise click.UsageError("a user's name has no colon")
    if not where.secure and not _stays_here(where.host):
        click.echo(f"warning: {where.redacted} has no TLS: anybody between can read it", err=True)
    return Server(
        url=where,
        user=user,
        password=read_password(password_file),
        protocol=protocol or list(PROTOCOLS)[-1],
        client_id=client_id,
        http=HttpClient(timeout_s=timeout, ca_file=ca_file, insecure=insecure),
    )


def _stays_here(host: str) -> bool:
    try:
        return is_local(read_address(host))
    except ValueError:
        return host == "localhost"


def read_password(file: IO[str] | None) -> str:
    """From a file, the environment or the terminal; never an argument, which everybody may read."""
    if file is not None:
        line = first_line(file)
        if not line:
            raise click.UsageError(f"{file.name} holds no password")
        return line
    if given := os.environ.get(PASSWORD_VARIABLE):
        return given
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, err=True))
    raise click.UsageError(f"no password: set {PASSWORD_VARIABLE} or give --password-file")


def converse(talk: Coroutine[Any, Any, T], json_: bool) -> T:
    """Run a conversation. Raises: TransportFailed, after saying it as JSON where that is wanted."""
    try:
        return asyncio.run(talk)
    except RequestFailed as error:
        if json_:
            record = {"outcome": "unreachable", "reason": error.kind, "text": str(error)}
            click.echo(json.dumps(record))
        hint = error.hint
        if error.kind == "tls" and "certificate" in str(error):
            hint = "give its authority with --ca-file, or try out with --insecure"
        raise TransportFailed(str(error), hint) from None
