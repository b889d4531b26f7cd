"""What children notify."""

from __future__ import annotations

import os
import socket

from cordata.supervisor.notify import NotifySocket


def test_descriptors_that_a_child_sends_are_closed() -> None:
    notify = NotifySocket()
    before = os.listdir("/proc/self/fd")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as child:
        child.connect(f"\0{notify.address[1:]}")
        for count in (1, 3, 200):
            socket.send_fds(child, [b"FDSTORE=1\nFDNAME=x"], [0] * count)
        child.send(b"READY=1\nSTATUS=up")
    messages = list(notify.receive())
    assert messages[:3] == [(os.getpid(), {"FDSTORE": "1", "FDNAME": "x"})] * 3
    assert messages[3] == (os.getpid(), {"READY": "1", "STATUS": "up"})
    assert os.listdir("/proc/self/fd") == before
    notify.close()
