"""The edge to systemd: inherited sockets, notifications, watchdog, credentials, journal."""

from cordata.systemd.credentials import Credentials as Credentials
from cordata.systemd.journal import install_logging as install_logging
from cordata.systemd.journal import set_level as set_level
from cordata.systemd.notify import Notifier as Notifier
from cordata.systemd.notify import is_booted as is_booted
from cordata.systemd.notify import watchdog_usec as watchdog_usec
from cordata.systemd.sockets import ListenSocket as ListenSocket
from cordata.systemd.sockets import listen_fds as listen_fds
from cordata.systemd.sockets import reexec as reexec
