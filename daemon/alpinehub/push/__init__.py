"""Outbound push: guest requests sent to hotel software that does not poll."""
