"""The ASGI application of the status page.

It reads requests and writes responses itself, in some 60 lines: a worker of an application should
not have to import a framework for this page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cordata.app_loader import Loaded
from cordata.broker.inspection import DeadLetters, Filter
from cordata.config.show import lines
from cordata.context import Context
from cordata.core.number import parse_number
from cordata.errors import CordataError
from cordata.http.asgi import ClientGone, Receive, Scope, Send
from cordata.log import logger
from cordata.operate.actions import clear_alerts, retry_mails
from cordata.operate.request_trace import RequestTrace, as_rows, find_in_store
from cordata.services.loop import background, pause
from cordata.status.page.access import COOKIE, SESSION_S, Access, TooManyAttempts
from cordata.status.page.view import KEPT_S, PARTS, Collector, environment, moment, render_parts
from cordata.status.tables import document
from cordata.systemd import Credentials

log = logger("cordata.status")

#: Streams of changes that one process sends at once.
MAX_STREAMS = 20
_TRACE_S, _TRACED_DAYS = 10.0, 7
_MAX_CHARS = 200
_STATIC = {"style.css": "text/css", "script.js": "text/javascript", "icon.svg": "image/svg+xml"}
#: What a page may load and where its forms may go; nothing inline, nothing of others.
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'",
    "x-content-type-options": "nosniff",
    # Not no-referrer: then browsers send `Origin: null` with forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
#: What was done, as the page says it after the action.
_DONE = {
    "replay": "The dead letter was returned to its group.",
    "acknowledge": "The alert was deleted.",
    "retry": "The mail is sent again now.",
    "nothing": "There was nothing to do: somebody else was faster, or it has changed.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole response."""

    body: str | bytes = ""
    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """The request gets this response."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        plain = "text/plain; charset=utf-8"
        self.response = Response(
            status=status, body=text + "\n", content_type=plain, headers=headers
        )


class Request:
    """The parts of a request that the page uses."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        self.client: str = scope["client"][0] if scope["client"] else "a local socket"
        self.is_https = scope["scheme"] == "https"
        self.stop: asyncio.Event = scope["state"]["stop"]
        self.receive = receive
        self._query: bytes = scope["query_string"]

    def query(self, name: str) -> str:
        """A parameter; "" if there is none."""
        return _fields(self._query).get(name, "")

    @property
    def cookie(self) -> str:
        """The cookie of the session; "" if there is none.

        Not by SimpleCookie, which drops the ones beside a malformed one: browsers send those of
        every program on this host, whatever its port.
        """
        text: str = self.headers.get("cookie", "")
        for one in text.split(";"):
            name, _, value = one.strip().partition("=")
            if name == COOKIE:
                return value
        return ""

    @property
    def is_from_here(self) -> bool:
        """Whether the page itself sent this form: every browser sends with a POST the scheme, host
        and port of the page that it comes from. The scheme counts if the page came by TLS: a proxy
        may have ended that without saying so.
        """
        scheme, _, address = self.headers.get("origin", "").partition("://")
        same_host = address != "" and address == self.headers.get("host")
        return same_host and (scheme == "https" or not self.is_https)

    async def form(self) -> dict[str, str]:
        """The fields of a form; the server bounds its size."""
        body = b""
        while True:
            message = await self.receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return _fields(body)

    async def gone(self) -> None:
        """Return when the client has left."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


def _fields(text: bytes) -> dict[str, str]:
    try:
        found = parse_qs(text.decode(), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise Refused(400, "not a form") from None
    return {name: values[-1] for name, values in found.items()}


class StatusPage:
    """Answers with pages, does what their forms ask for, and streams changes."""

    def __init__(self, ctx: Context, loaded: Loaded, token: str, *, with_units: bool) -> None:
        """`with_units`: this process is a unit of systemd, so the others are, too."""
        self._ctx, self._loaded = ctx, loaded
        self._access = Access(token)
        self._collector = Collector(ctx, loaded.config, with_units=with_units)
        self._streams = 0
        self._tracing = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            raise ValueError(scope["type"])
        try:
            request = Request(scope, receive)
            response = await self._answer(request, send)
        except Refused as refused:
            response = refused.response
        if response is not None:
            body = response.body.encode() if isinstance(response.body, str) else response.body
            await _start(send, response.status, response.content_type, response.headers)
            await send({"type": "http.response.body", "body": body})

    async def _answer(self, request: Request, send: Send) -> Response | None:
        """None: the response has been sent."""
        name = request.path.removeprefix("/")
        if request.method == "POST":
            return await self._post(request, name)
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "use GET or POST", allow="GET, HEAD, POST")
        if name in _STATIC:
            return _static(name)
        if name == "login":
            return _page("login", wrong="")
        if not self._may(request):
            if name in ("live", "status.json"):
                raise Refused(401, "log in, or send the token", **{"www-authenticate": "Bearer"})
            return Response(status=303, headers={"location": "/login"})
        match name:
            case "":
                return await self._overview(request)
            case "live":
                await self._live(request, send)
                return None
            case "status.json":
                view = await self._collector.latest()
                text = json.dumps(document(view.snapshot, view.reasons), ensure_ascii=False)
                return Response(body=text, content_type="application/json")
            case "trace":
                return await self._trace(request)
            case "configuration":
                return self._configuration()
        raise Refused(404, "there is no such page")

    # Who may

    def _may(self, request: Request) -> bool:
        """By session or token. Raises: Refused when tokens are not checked for now."""
        return self._access.is_session(request.cookie) or self._has_token(request)

    def _has_token(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._check(given.strip(), request)

    def _check(self, given: str, request: Request) -> bool:
        try:
            if self._access.is_token(given):
                return True
        except TooManyAttempts as error:
            after = {"retry-after": str(error.retry_after_s)}
            raise Refused(429, "too many wrong tokens: try again later", **after) from None
        log.warning("status page: wrong token from %s", request.client)
        return False

    # Pages

    async def _overview(self, request: Request) -> Response:
        done = _DONE.get(request.query("done"), "")
        view = await self._collector.latest(fresh=bool(done))
        return _page("overview", view=view, parts=render_parts(view), done=done)

    async def _trace(self, request: Request) -> Response:
        id_ = request.query("id").strip()
        found, wrong = RequestTrace(), ""
        if id_:
            try:
                if self._tracing.locked():
                    raise TimeoutError
                async with self._tracing, asyncio.timeout(_TRACE_S):
                    since = self._ctx.now_us() - _TRACED_DAYS * 86_400_000_000
                    found = await find_in_store(self._ctx.store, _plain(id_), since=since)
            except TimeoutError:
                wrong = "The search takes too long for a page, or another one is under way."
            except CordataError as error:
                wrong = f"The store did not answer: {error.code}."
        steps = [{**row, "at": moment(row["at"])} for row in as_rows(found.steps)]
        return _page("trace", id=id_, found=found, steps=steps, wrong=wrong)

    def _configuration(self) -> Response:
        config, document = self._loaded.config, self._loaded.document
        names = Credentials(config.paths.credentials).names()
        shown = [
            (line, bool(line) and line[0] not in "#[" and not line.endswith("# default"))
            for line in lines(config, document, names)
        ]
        return _page("configuration", lines=shown)

    # Live

    async def _live(self, request: Request, send: Send) -> None:
        """Server-sent events: the parts that have changed since the last one, as HTML by id."""
        if self._streams >= MAX_STREAMS:
            raise Refused(503, "too many pages are open: this one does not update itself")
        self._streams += 1
        try:
            ended = asyncio.Event()
            gone, stopped = _then_set(request.gone(), ended), _then_set(request.stop.wait(), ended)
            async with background(gone, stopped):
                await self._send_changes(request, send, ended)
        except ClientGone:
            pass
        finally:
            self._streams -= 1

    async def _send_changes(self, request: Request, send: Send, ended: asyncio.Event) -> None:
        await _start(send, 200, "text/event-stream", {})
        sent: dict[str, str] = {}
        text = "retry: 2000\n\n"
        # A session may end meanwhile; the token is valid as long as this process runs.
        by_token = not self._access.is_session(request.cookie)
        while not ended.is_set() and (by_token or self._access.is_session(request.cookie)):
            parts = render_parts(await self._collector.latest())
            changed = {id_: html for id_, html in parts.items() if sent.get(id_) != html}
            sent = parts
            # A comment shows a proxy, and us, that the other side is there.
            text += f"data: {json.dumps(changed)}\n\n" if changed else ":\n\n"
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            text = ""
            await pause(ended, KEPT_S)
        await send({"type": "http.response.body", "body": b""})

    # Actions

    async def _post(self, request: Request, name: str) -> Response:
        form = await request.form()
        if name == "login":
            return self._log_in(request, form)
        if not self._has_token(request):
            if not self._access.is_session(request.cookie):
                return Response(status=303, headers={"location": "/login"})
            if not request.is_from_here:
                log.warning("status page: refused a forged form from %s", request.client)
                raise Refused(403, "this form was not sent by the page: reload it")
        if name == "logout":
            return Response(status=303, headers={"location": "/login", **_cookie("", request, 0)})
        done = await self._act(name, form)
        id_ = " ".join(_plain(form.get(one, "")) for one in ("event", "group", "alert", "mail"))
        what = "done" if done else "nothing to do"
        log.info("status page: %s %s by %s: %s", name, id_.strip(), request.client, what)
        where = f"/?done={name if done else 'nothing'}"
        return Response(status=303, headers={"location": where})

    def _log_in(self, request: Request, form: Mapping[str, str]) -> Response:
        if not request.is_from_here:
            raise Refused(403, "this form was not sent by the page: reload it")
        if not self._check(form.get("token", "").strip(), request):
            return _page("login", wrong="That is not the token.", status=403)
        log.info("status page: login from %s", request.client)
        headers = _cookie(self._access.new_session(), request, SESSION_S)
        return Response(status=303, headers={"location": "/", **headers})

    async def _act(self, name: str, form: Mapping[str, str]) -> bool:
        """Do what a command does; whether there was anything to do. Raises: StoreUnavailable."""
        store = self._ctx.store
        match name:
            case "replay":
                event, group = (_plain(form.get(one, "")) for one in ("event", "group"))
                wanted = Filter(event_id=event, group=group)
                return await DeadLetters(store).replay(wanted) > 0
            case "acknowledge":
                alert = _plain(form.get("alert", ""))
                return not await store.run(lambda tx: clear_alerts(tx, [alert]))
            case "retry":
                if (mail := parse_number(form.get("mail", ""))) is None:
                    raise Refused(400, "mail is not a number")
                return not await store.run(lambda tx: retry_mails(tx, [mail]))
        raise Refused(404, "there is no such action")


def _plain(text: str) -> str:
    """An id that a form or a link has. Raises: Refused."""
    if len(text) > _MAX_CHARS or not text.isprintable():
        raise Refused(400, "not an id")
    return text


def _cookie(value: str, request: Request, age_s: int) -> dict[str, str]:
    secure = "; Secure" if request.is_https else ""
    text = f"{COOKIE}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"
    return {"set-cookie": text}


async def _then_set(first: Any, event: asyncio.Event) -> None:
    await first
    event.set()


async def _start(send: Send, status: int, content_type: str, more: Mapping[str, str]) -> None:
    headers = {**_HEADERS, "content-type": content_type, **more}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


def _page(name: str, *, status: int = 200, **given: Any) -> Response:
    template = environment().get_template(f"{name}.html.j2")
    return Response(status=status, body=template.render(part_ids=PARTS, **given))


def _static(name: str) -> Response:
    body = (Path(__file__).parent / "static" / name).read_bytes()
    return Response(body=body, content_type=f"{_STATIC[name]}; charset=utf-8")
