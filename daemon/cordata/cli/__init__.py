"""Click commands: parse, load the configuration, call."""
