"""Checks shards: `verify` proves that they are whole, `inspect` shows what they contain, `diff` what changed."""
