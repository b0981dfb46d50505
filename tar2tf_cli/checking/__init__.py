"""Shards in, the truth about them out: verify proves that they are whole, inspect shows what they hold."""
