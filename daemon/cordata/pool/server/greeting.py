"""The handshake: who may connect as what, and what it is from then on."""

from __future__ import annotations

from cordata import events
from cordata.core.frame import VERSION, TooLarge
from cordata.core.pool.codec import UnfitMessage, from_client
from cordata.core.pool.message import Hello, Welcome
from cordata.errors import ProtocolError
from cordata.log import fields, logger
from cordata.pool.fingerprint import gone
from cordata.pool.server.childlink import ChildPeer
from cordata.pool.server.clientlink import ClientPeer
from cordata.pool.server.link import Link
from cordata.pool.server.peer import Peer
from cordata.pool.server.workerlink import WorkerPeer

log = logger("cordata.pool")

#: Whoever has not said hello by then is closed.
HELLO_S = 5.0


class Greeting:
    """The peer of a connection before its hello."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def take(self, frame: bytes) -> None:
        """The hello. Raises: ProtocolError when it is none."""
        try:
            hello = from_client.decode(frame)
        except UnfitMessage as error:
            raise ProtocolError(f"not a hello: {error}") from None
        if not isinstance(hello, Hello):
            raise ProtocolError("the first frame must be a hello")
        refusal = self._refusal(hello)
        if refusal is not None:
            self.refuse(*refusal)
            return
        link, hub = self._link, self._link.hub
        link.max_bytes = hello.max
        link.trusted = hello.role in ("worker", "child")
        hub.strangers.pop(link, None)
        hub.counting.connections[hello.role] += 1
        link.say(Welcome(epoch=hub.epoch, v=VERSION, max=hub.limits.max_frame_bytes))
        peer: Peer
        match hello.role:
            case "worker":
                link.peer = peer = WorkerPeer(link, hello)
                peer.join()
            case "child":
                link.peer = peer = ChildPeer(link, hello)
                peer.join()
            case _:
                link.peer = ClientPeer(link, hello)

    def refuse(self, code: str, text: str, data: dict[str, object] | None = None) -> None:
        """Answer, close, and say so in the log, though not each time."""
        link = self._link
        unsaid = link.hub.complaints.take(link.pid, link.hub.now)
        if unsaid is not None:
            extra = fields(events.POOL_PEER_REFUSED, reason=code, peer_pid=link.pid)
            more = f" ({unsaid} such lines were left out)" if unsaid else ""
            log.warning("process %d was refused: %s%s", link.pid, text, more, extra=extra)
        link.refuse(code, text, **(data or {}))

    def too_large(self, frame: TooLarge) -> None:
        """No hello is that large."""
        raise ProtocolError(f"a first frame of {frame.length} bytes")

    def lost(self) -> None:
        """Gone without a word."""

    def blocked(self, yes: bool) -> None:
        """It was sent nothing that could block."""

    def _refusal(self, hello: Hello) -> tuple[str, str, dict[str, object]] | None:
        link = self._link
        if not hello.vmin <= VERSION <= hello.v:
            text = f"it speaks versions {hello.vmin} to {hello.v}"
            return "version", text, {"versions": [VERSION]}
        if hello.pid and link.pid and hello.pid != link.pid:
            return "protocol", f"it says pid {hello.pid} and has {link.pid}", {}
        if hello.role == "client" and len(link.hub.links) > link.hub.limits.max_connections:
            return "saturated", "as many connections as may be", {"retry_after_s": 1.0}
        if hello.role != "client" and not link.ours:
            return "forbidden", f"user {link.uid} may be a client, not {hello.role}", {}
        if hello.role in ("worker", "child") and not (hello.name and hello.pid):
            return "protocol", f"a {hello.role} needs a name and a pid", {}
        if hello.role in ("worker", "child") and link.pid and gone(hello.pid, hello.start):
            # It lay in the backlog while there was no manager: nobody would ever report its end.
            return "protocol", f"process {hello.pid} of {hello.start} is no more", {}
        return self._usurper(hello)

    def _usurper(self, hello: Hello) -> tuple[str, str, dict[str, object]] | None:
        """Of two workers of one name, as two servers on one directory have them, the one that is
        here stays, with its children: else the two would take the place from each other for ever.
        """
        slot = self._link.hub.dispatcher.registry.by_worker.get(hello.name)
        theirs = {"worker": hello.pid, "child": hello.par}.get(hello.role, 0)
        if slot is None or slot.conn is None or not theirs:
            return None
        there: Hello = slot.conn.peer.hello
        if there.pid == theirs or gone(there.pid, there.start):
            return None
        return "forbidden", f"worker {hello.name} is process {there.pid}, and not {theirs}", {}
