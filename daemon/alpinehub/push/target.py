"""Push targets: the servers to which guest requests are pushed, with their sealed passwords.

The hub calls the URL from inside the operator's network. So it calls addresses that are not on the
internet, or without TLS, only with `[alpinehub] push_private`.
"""

from __future__ import annotations

from alpinehub.accounts import require_account
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.address import (
    Allowed,
    InvalidUrl,
    Url,
    is_local,
    is_public,
    is_public_or_private,
    parse_url,
)
from alpinehub.alpinebits_client.client import AlpineBitsClient, Login
from alpinehub.alpinebits_client.http import HttpClient
from alpinehub.hotels import Unusable
from alpinehub.push.schedule import wake
from cordata import Context, Row, Tx

#: The vault's context of push passwords.
PUSH_SECRET = "alpinehub push"
#: The name of a push in X-AlpineBits-ClientID and in the history.
CLIENT_ID = "alpinehub push"
#: Of a connection, and of an answer.
HTTP_TIMEOUT_S = 30.0
_MAX_ANSWER_BYTES = 1024 * 1024
_MAX_CHARS = 256


def allowed_addresses(url: Url, *, private: bool) -> Allowed:
    """Which addresses may be called for a URL; `private`: also those in the operator's network."""
    if not private:
        return is_public
    return is_public_or_private if url.secure else is_local


def check_url(written: str, *, private: bool) -> Url:
    """A URL to which guest requests may be pushed. Raises: Unusable."""
    try:
        url = parse_url(written)
    except InvalidUrl as error:
        raise Unusable(str(error)) from None
    if not url.secure and not private:
        raise Unusable(
            "guest requests are pushed over https:// only",
            hint="[alpinehub] push_private = true allows http:// to this machine and its network",
        )
    return url


async def set_target(
    ctx: Context, name: str, *, url: str, login: str, password: str, protocol: str, gzip: bool
) -> None:
    """Push the guest requests of an account to a URL from now on. Raises: Unusable, ConfigError."""
    where = check_url(url, private=ctx.settings["alpinehub"].push_private)
    for what, value in (("login", login), ("password", password)):
        if not 1 <= len(value) <= _MAX_CHARS or not value.isprintable():
            raise Unusable(f"a {what} has 1 to {_MAX_CHARS} printable characters")
    if ":" in login:
        raise Unusable("a login has no colon")
    sealed = ctx.vault.seal(password.encode(), context=PUSH_SECRET)

    async def unit(tx: Tx) -> None:
        account_id = await require_account(tx, name)
        await tx.execute(
            "push_set_target",
            account_id=account_id,
            url=str(where),
            login=login,
            secret=sealed,
            protocol=protocol,
            gzip=int(gzip),
        )
        await tx.execute("bump_directory")
        await wake(tx, account_id=account_id)

    await ctx.store.run(unit)


async def set_disabled(ctx: Context, name: str, disabled: bool) -> None:
    """Stop or resume pushing; polling is not affected. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        account_id = await require_account(tx, name)
        at = tx.now_us if disabled else None
        if not await tx.execute("push_set_disabled", account_id=account_id, disabled_at=at):
            raise _no_target(name)
        await tx.execute("bump_directory")
        if not disabled:
            await wake(tx, account_id=account_id)

    await ctx.store.run(unit)


async def push_now(ctx: Context, name: str) -> None:
    """Push what waits for an account now, without the pause after failures. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        account_id = await require_account(tx, name)
        if await read_target(tx, account_id) is None:
            raise _no_target(name)
        await wake(tx, account_id=account_id)

    await ctx.store.run(unit)


def _no_target(name: str) -> Unusable:
    hint = f"`alpinehub account push set {name}`, or `alpinehub account push on {name}`?"
    return Unusable(f"account {name!r} has no push target", hint=hint)


async def list_targets(ctx: Context) -> list[dict[str, object]]:
    """One row for each target and hotel, without password and query of the URL."""
    rows = await ctx.store.read(lambda tx: tx.fetch_all("push_list"))
    return [{**row, "url": parse_url(row["url"]).redacted} for row in rows]


async def find_client(ctx: Context, name: str) -> AlpineBitsClient:
    """A client for the server of an account. Raises: Unusable; CordataError: cannot decrypt its
    password.
    """

    async def unit(tx: Tx) -> Row | None:
        return await read_target(tx, await require_account(tx, name))

    row = await ctx.store.read(unit)
    if row is None:
        raise _no_target(name)
    return open_client(ctx, row)


async def closed_passwords(ctx: Context) -> list[str]:
    """Accounts whose push password was sealed with another master key; all if there is no key."""
    rows = await ctx.store.read(lambda tx: tx.fetch_all("push_secrets"))
    return [
        str(row["name"])
        for row in rows
        if not ctx.vault.can_open(row["secret"], context=PUSH_SECRET)
    ]


async def read_target(tx: Tx, account_id: int) -> Row | None:
    """The stored row; None if there is none, or it or its account is disabled."""
    return await tx.fetch_one("push_target", account_id=account_id)


def open_client(ctx: Context, row: Row) -> AlpineBitsClient:
    """A client for the server in a row. Raises: CordataError: cannot decrypt its password."""
    login = Login(
        url=parse_url(row["url"]),
        user=row["login"],
        password=ctx.vault.open(row["secret"], context=PUSH_SECRET).decode(),
        protocol=PROTOCOLS[row["protocol"]],
        client_id=CLIENT_ID,
    )
    private = ctx.settings["alpinehub"].push_private
    http = HttpClient(
        timeout_s=HTTP_TIMEOUT_S,
        max_bytes=_MAX_ANSWER_BYTES,
        allowed=allowed_addresses(login.url, private=private),
    )
    return AlpineBitsClient(login=login, http=http)
