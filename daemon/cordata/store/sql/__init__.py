"""The runtime's own SQL; what only one dialect runs is in its folder."""
