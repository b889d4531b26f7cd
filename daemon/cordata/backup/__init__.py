"""Backups: an online copy of the store, configuration and credentials, and the way back."""
