"""Pure rules: no IO, no clock, no asyncio."""
