"""Frames of the pool's socket: the protocol, version 1, and how a byte stream is cut into frames.

A frame is 4 bytes, an unsigned big-endian length L, then L bytes: exactly one MessagePack map with
string keys. 1 <= L <= max, which `welcome` tells (16,777,216 unless configured). L = 0, a body that
is no map, or bytes after the map end the connection. Key `t` (the type) is sent first, `id` second
where there is one. Unknown keys are ignored. A key with its default may be left out, and is by the
manager: the default is the one in parentheses below, for versions 1, for max 16,777,216, for an
error's code protocol; for all others 0, "", false, nil, or a list or map with nothing in it.
Integers are 0 <= n < 2**63 where no other range is given; text is UTF-8; names and ids of sessions,
commands, workers and requests, of values, counters and globals have at most 200 characters. `p` and
values of sessions are any one MessagePack value, passed through undecoded. Times are relative, in
seconds, and 2,000,000 of them count at most: clocks are never compared.

Too large (L > max): the receiver drops L bytes, answers `error` code frame_too_large, with the id
if it stands within the first 256 bytes, t and both keys in their shortest forms, and goes on.
L > 64 * max: it answers and closes. What is no message (unknown `t`, a field of a wrong type) is
answered `error` code protocol; a client's connection then goes on, any other is closed.

Handshake. Whoever connects sends within 5 s, before anything else and only once:
  hello {v: highest version, vmin: lowest, role: "client"|"operator"|"worker"|"child", name: text
    (""; worker and child: the instance), pid, start: field 22 of /proc/self/stat (0), inv:
    $INVOCATION_ID (""), max: largest frame it takes (16 MiB), has: features ([]), cmds: commands
    that it runs ([]; worker and child), spare: a child that warms up to replace another (false),
    warm: a child that comes back and sends no `ready` (false), par: pid of a child's worker (0)}
  A pid other than that of the socket's peer is refused (0, another name space, is believed).
  Worker, child and operator must have the manager's own uid, or root's. While a worker lives and
  is connected, no other process may be worker of its name, nor its children that worker's.
-> welcome {v: chosen version, epoch: 16 hex digits, this run of the manager, max, has ([])}
   or error (code version with data {versions: [1]}, protocol or forbidden), then the end.
Of two connections of a worker or child with one fingerprint (pid and start) the older one is
closed; that of a client tells which child's command calls. The manager pings
nobody; a peer that is gone is an end of file.

Client to manager; each id is the client's own, and free again after its last answer:
  call {id, c: command, p (nil), s: session (""), d: timeout (the pool's), q: longest wait in the
    queue (the pool's), i: idempotent (false), y: priority 0..9, higher goes first (0), w: credits
    0..1024, 0: one result, else a stream (0), r: request id (""), a: attempts before this one (0),
    l: the loan at whose child it had best run (0)}
    -> result {id, p} | chunk {id, p} per credit, then end {id} | error
  credit {id, n: 1..1024}            so many more chunks may come; 65,536 at most, not used yet
  cancel {id, hard (false)}          -> error cancelled, unless an answer is under way; hard: its
    child is killed when it has not ended after a grace; with n: the serial of a call that this
    client gave to a child on loan, which is killed at once if it has the call in hand
  session {id, op: create get update delete touch count, s (""), ttl (nil), set ({}), del ([]), aff:
    hint strict_queue strict_fail (""), wk: preferred worker (nil), by: {counter: n} ({}),
    peek: get without touching (false)}    create with s "" makes an id of 32 hex digits
    -> reply {id, s, v: version, ttl: seconds left, set: data, cnt: counters, aff, wk} | error
    (data and counters of create, get, update only; count: the new values; delete: s only)
  global {id, op: get set delete, set ({}), del ([]), keys: those to get ([]: all)} -> reply {id, v,
    set}         (a map or list of a client, or of a hello, has at most 65,536 entries, beside p)
  ping {id} -> pong {id}             bye {}: no more calls come; the rest is answered, then the end
Operator, beside these: ask {id, op: status sessions drain undrain recycle, name: worker (""), after
  (""), limit (100)} -> reply {id, p}
Manager to client, beside answers: error {code, m: text, data {}} without id speaks of the
connection.
  goaway {why}: send no new calls here; those under way are answered, waiting ones by error not_run.

Loans: a client and a child whose hello has "loan2" may get, with the manager's frame
  loan {l: its number, wk: the child's worker (""), q: calls that may wait at the client (0), g:
    grace of a hard cancel (0)}, as SCM_RIGHTS of unix(7), two descriptors: a socket to the other
    one, and a page of memory that both share (core/pool/page.py). On that socket the client sends
    run {id, o: 1, 2, 3 .., c, p (nil), d: seconds left (0), s: session (""), r ("")}, of which the
    serial is 2**62 + l * 2**31 + o, and cancel {id, n: a serial}; the child answers result or
    error, and not_run for what it does not begin. On the page o is begun and taken back as between
    child and worker. Its end of file ends the loan: what the page says is not begun, is not.
    (core/pool/loan.py tells what a loan is for.)
  recall {l} to the child: end it after the call in hand
  returned {l, n: calls (0), f: those that failed (0), ms: how many took up to 1, 2, 5, 10, 20, 50,
    .. 20,000, 60,000 milliseconds, and longer ([]), more (false)} from the child: so many since it
    told last; unless there is more, the loan is over
  passed {l, id, s, p, x, u: see below} from the child in place of a result that changes session
    or globals -> result or error of that id to the client
  lent {l, s, d: seconds} to the client: calls of this session may go to that child for so long
  lost {l, m: text, data: see crashed} to the client: how that child died

error {id, code, m, data {}} is the last frame of its id. Codes, with their data:
  saturated {retry_after_s} queue_timeout deadline {ran: bool} cancelled poisoned {retry_after_s}
  crashed {exit_code, signal, lines, worker, pid} failed {type, traceback, permanent}
  unknown_command {near: a name that is known and much like it, or ""} no_session session_exists
  quota preferred_busy frame_too_large {length_bytes, limit_bytes: 0 if not known} restarted closed
  not_run (it never reached a child: send it again) version protocol forbidden

Manager to child, which runs one call at a time, in the order they came, and answers each `run`
once, before it begins the next:
  run {id: the caller's, n: the manager's serial, c, p, d: seconds left, g: grace before the kill,
    w, r, s: {id, v, full: data (absent: it has version v), cnt, wk} (nil), f: ids of sessions to
    forget ([]), gl: {v, set, del, full: forget the former (false)} (nil: it has them), o: number
    of the run, higher than any before it (0)}
  news {s, f, gl: as in a run, before one that would be too large with them; l: sessions that calls
    of a loan may use, each until it is forgotten or sent in full ([])}
  credit {id, n}   goaway            cancel {id, n: serial (0)}: soft; skip, when it has not begun
  skip {n: serial}                   do not begin it: it is given back, unless it has begun
Child to manager: ready {} when warm, then
  back {o}: that run is not begun, and never will be; for the child it has changed what s, f, gl say
  result|chunk|end|error {.., x: microseconds it ran (0), u: {v: version it started from, set, del,
    cnt: {counter: by}, gset, gdel} (absent: it changed nothing; only on success, and never in a
    chunk)}
  A child that loses the manager ends its call, drops the answer, and dials again with empty hands.
Worker to manager: drain {on}, child {ev: started exited unhealthy warm due retired measured holds,
  pid, start, why (""), code (nil), sig (nil), lines ([]), n: serial of the last call that it began
  (0), run: still in hand (false), rss: its resident bytes (0: not measured), and of calls that a
  client gave to it: c: the command in hand (""), age: for how long it is (0), d: seconds left to it
  (0), lent: those that ended and of which the child did not tell (0), f: of these failed (0); m:
  why it ended before it was warm, in one line ("")}. `exited` with pid 0 and start 0 is of no
  process: none could be started, and m says why. The why of `started` is "spare" for one that
  is to replace another; that of `exited` is "" unless the worker itself ended it; `holds` comes
  every second while such a call is in hand. taken_back {pid, start, o, begun}: of the runs up to
  number o, those above begun will not begin.
Manager to worker: kill {pid, start, n, why}, retire {pid, start}, recycle {}, goaway, alarm {ev:
  MESSAGE_ID, m: text}: one worker is told what the manager, without network, cannot mail; take_back
  {pid, start, o}: the child is to begin no run up to number o any more (core/pool/page.py).
Worker and child speak the same frames, without handshake, on a socket pair: ping {id} -> pong, stop
  {} (after the call in hand), adopt {} (a spare takes over); the child: up {}, due {why}, failed
  {m, trace}. At its end of file the child exits at once.
A client that does not read is not read from. It is closed when 4 * max bytes wait for it for 30 s,
or 16 * max at any time. Half frames of all clients may have 16 * max bytes, too: who began first is
closed.
A lost connection: the client sends calls with `i` again, with a one higher and d what is left, and
those never sent; any other may have run, and fails as `restarted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from cordata.errors import ProtocolError

VERSION = 1
#: Bytes of the length.
HEAD = 4
MAX_FRAME = 16 * 1024 * 1024
#: A length of this many times the maximum is no mistake of size but another protocol.
HOPELESS = 64
#: Of a frame that is too large, so much is kept to find its id.
PREFIX = 256
_length = Struct(">I")
_pack_length: Callable[[int], bytes] = _length.pack
_unpack_length: Callable[[memoryview, int], tuple[int]] = _length.unpack_from


@dataclass(frozen=True, slots=True)
class TooLarge:
    """In place of a frame that its receiver does not take."""

    #: Bytes after the head.
    length: int
    #: Its `t` and `id`, as far as they could be read: "" and None otherwise.
    kind: str
    id: int | None
    #: Whether the connection goes on after it.
    skippable: bool


class Splitter:
    """Cuts one connection's bytes into frames. What it holds is bounded by the largest frame."""

    __slots__ = ("_broken", "_held", "_max", "_skip", "_wanted")

    def __init__(self, max_bytes: int = MAX_FRAME) -> None:
        self._max = max_bytes
        #: The first bytes of a frame that is not whole, head included.
        self._held = bytearray()
        #: How many of them are needed next: the head, then the frame, or a too large one's prefix.
        self._wanted = HEAD
        #: Bytes of a too large frame still to drop.
        self._skip = 0
        self._broken = False

    @property
    def pending_bytes(self) -> int:
        """Bytes kept of a frame that is not whole."""
        return len(self._held)

    def feed(self, data: bytes | memoryview) -> list[bytes | TooLarge]:
        """The frames that end in `data`, each whole with its 4 bytes.

        `data` may be overwritten afterwards. After a TooLarge that is not skippable everything is
        dropped. Raises: ProtocolError for an empty frame; those before it in `data` are lost, as
        the connection is.
        """
        view = memoryview(data)
        frames: list[bytes | TooLarge] = []
        at, end = 0, len(view)
        while at < end and not self._broken:
            if not self._held and not self._skip:
                # The fast path: whole frames, one behind the other.
                while end - at >= HEAD:
                    (length,) = _unpack_length(view, at)
                    after = at + HEAD + length
                    if not 0 < length <= self._max or after > end:
                        break
                    frames.append(bytes(view[at:after]))
                    at = after
                if at == end:
                    break
            if self._skip:
                dropped = min(self._skip, end - at)
                self._skip -= dropped
                at += dropped
                continue
            piece = view[at : at + self._wanted - len(self._held)]
            self._held += piece
            at += len(piece)
            if len(self._held) == self._wanted:
                self._step(frames)
        return frames

    def _step(self, frames: list[bytes | TooLarge]) -> None:
        """What was waited for is there: the head, a whole frame, or a too large one's prefix."""
        length = int.from_bytes(self._held[:HEAD], "big")
        if self._wanted > HEAD:
            if length <= self._max:
                frames.append(bytes(self._held))
            else:
                kind, number = head_of(bytes(self._held[HEAD:]))
                frames.append(TooLarge(length, kind, number, True))
                self._skip = length - (self._wanted - HEAD)
            self._held, self._wanted = bytearray(), HEAD
        elif length == 0:
            self._broken = True
            raise ProtocolError("a frame of no bytes")
        elif length > self._max * HOPELESS:
            self._broken = True
            self._held.clear()
            frames.append(TooLarge(length, "", None, False))
        else:
            self._wanted = HEAD + (length if length <= self._max else min(length, PREFIX))


def pack(body: bytes) -> bytes:
    """A frame around one encoded map. Raises: struct.error above 4 GiB."""
    return _pack_length(len(body)) + body


def head_of(prefix: bytes) -> tuple[str, int | None]:
    """`t` and `id` from the first bytes of a body; "" and None where they do not stand."""
    at = {0xDE: 3, 0xDF: 5}.get(prefix[0], 1) if prefix else 0
    if prefix[at : at + 2] != b"\xa1t":
        return "", None
    at += 2
    first = prefix[at] if at < len(prefix) else 0
    if 0xA0 <= first <= 0xBF:
        start, size = at + 1, first & 0x1F
    elif first == 0xD9 and at + 1 < len(prefix):
        start, size = at + 2, prefix[at + 1]
    else:
        return "", None
    kind, at = prefix[start : start + size], start + size
    if len(kind) < size:
        return "", None
    return kind.decode(errors="replace"), _id_at(prefix, at)


def _id_at(prefix: bytes, at: int) -> int | None:
    """The unsigned integer after the key `id`, if that stands at `at`."""
    if prefix[at : at + 3] != b"\xa2id" or at + 3 >= len(prefix):
        return None
    first = prefix[at + 3]
    if first <= 0x7F:
        return first
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(first, 0)
    digits = prefix[at + 4 : at + 4 + size]
    number = int.from_bytes(digits, "big")
    return number if size and len(digits) == size and number < 2**63 else None
