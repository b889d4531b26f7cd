"""The foreground supervisor: what systemd does for the units, for development and containers."""

from cordata.supervisor.supervisor import Supervisor as Supervisor
