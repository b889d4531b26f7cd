"""The edge to systemd: inherited sockets, notifications, watchdog, credentials, journal."""
