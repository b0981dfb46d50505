"""Verification, inspection and comparison of shards: `verify` finds faults, `inspect` describes, `diff` compares."""
