"""A child's start: die with the worker, say hello, import what it runs, then take calls."""

from __future__ import annotations

import contextlib
import gc
import inspect
import mmap
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from cordata.core.pool import spec as specs
from cordata.core.pool.order import Failed, Up
from cordata.core.pool.page import SIZE, Writer
from cordata.core.pool.spec import CHANNEL_FD, PAGE_FD, ChildSpec
from cordata.log import frames, logger, shows_messages, trail
from cordata.pool.child.calling import Calling, find
from cordata.pool.child.connection import Connection
from cordata.pool.child.flow import Flow
from cordata.pool.child.loop import Channel, Loop
from cordata.pool.child.output import Output
from cordata.unhandled import install_hooks

log = logger("cordata.pool")

_PR_SET_PDEATHSIG = 1
#: Their messages name modules, files and lines, and no values.
_OF_THE_CODE = (ImportError, ModuleNotFoundError, SyntaxError, IndentationError, TabError)
#: Frames of the import itself: a dozen for a module that imports another, and they tell nothing.
_IMPORTING = re.compile(r'^  (?:File ")?<frozen importlib\._bootstrap.*\n?', re.MULTILINE)
#: More of a traceback is not for a frame of the second channel.
_TRACE = 16384


def start() -> int:
    """The life of a child. Gives its exit status."""
    # Whatever the worker's own starter left open is not for us.
    os.closerange(PAGE_FD + 1, os.sysconf("SC_OPEN_MAX"))
    with mmap.mmap(PAGE_FD, 0) as shared, memoryview(shared) as whole:
        spec = specs.read(bytes(whole))
        for fd in (CHANNEL_FD, PAGE_FD):
            os.set_inheritable(fd, False)  # a command's own subprocess has no use for them
        sys.path[:] = spec.path
        output = Output(spec.log_level)
        install_hooks()
        _die_with(spec.parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, who stops us
        try:
            with contextlib.closing(Writer(whole[:SIZE])) as page:
                return _live(spec, page, output)
        except SystemExit as error:  # of a command; Python would print what it carries
            _end(output, _status_of(error))
        except BaseException as error:  # noqa: BLE001 - whatever a command raised to end it
            sys.excepthook(type(error), error, error.__traceback__)
            _end(output, 1)


def _end(output: Output, status: int) -> NoReturn:
    """At once: Python would wait for threads that a command left, and the caller with it."""
    with contextlib.suppress(Exception):  # a command may have closed them
        output.end()
    os._exit(status & 0xFF)


def _status_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    log.error("the process ends by SystemExit", exc_info=error)
    return 1


def _live(spec: ChildSpec, page: Writer, output: Output) -> int:
    channel = Channel(CHANNEL_FD)
    connection = Connection(spec)
    connection.dial()  # the manager knows of the child while it warms up
    flow = Flow(connection, CHANNEL_FD)
    try:
        commands = {name: find(place) for name, place in spec.commands.items()}
        calling = Calling(commands, flow, worker=spec.worker)
        _initialize(spec.inits, calling)
    except Exception as error:  # noqa: BLE001 - the application's own modules
        channel.send(_failed(error))
        output.end()
        return 1
    gc.collect()
    gc.freeze()  # what is here stays
    connection.warm = True
    channel.send(Up())
    connection.tell_warm()
    Loop(spec, page, channel, connection, calling, output).run()
    return 0


def _failed(error: Exception) -> Failed:
    """For the journal: what may be told of it there."""
    name, whole = type(error).__name__, shows_messages()
    place = frames(error.__traceback__).partition(" < ")[0]
    text = f"{name}: {error}" if whole or type(error) in _OF_THE_CODE else f"{name} at {place}"
    trace = "".join(traceback.format_exception(error)) if whole else trail(error)
    trace = _IMPORTING.sub("", trace)
    text, trace = (one.encode(errors="backslashreplace").decode() for one in (text, trace))
    return Failed(m=text, trace=trace[-_TRACE:])


def _initialize(places: Sequence[str], calling: Calling) -> None:
    for place in places:
        made = find(place)()
        if inspect.iscoroutine(made):
            calling.asynchronous.run(made)


def _die_with(parent: int) -> None:
    """However the worker ends, this process does not outlive it."""
    try:
        from ctypes import CDLL

        if CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError("refused")
    except (ImportError, OSError, AttributeError) as error:
        # The unit's cgroup, and the end of the channel, are left.
        log.debug("no signal at the worker's end: %s", error)
    if os.getppid() != parent:
        os._exit(1)  # it ended before the signal was asked for
