"""Debian 13 hosts that boot in a second, are thrown away, and cannot hurt their machine."""
