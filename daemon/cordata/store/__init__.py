"""The durable store: units of work, group commit, migrations, wake-ups."""
