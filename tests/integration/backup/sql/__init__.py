"""SQL of the tests of backups."""
