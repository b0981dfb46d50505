"""Runs a `Conversion`: plan, tasks, sharding, spools, publishing, manifest and dry run."""
