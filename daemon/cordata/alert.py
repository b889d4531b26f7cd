"""Alerts: always the journal; a mail at most once per cause and cool-down, counting the rest."""
