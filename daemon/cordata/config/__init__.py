"""Configuration: one TOML file, frozen sections, secrets as credentials."""
