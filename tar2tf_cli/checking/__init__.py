"""Verifies, describes and compares shards: `verify` finds faults, `inspect` shows contents, `diff` lists changes."""
