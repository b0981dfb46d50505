"""A `Conversion` in, shards and a manifest out: plan, tasks, sharding, spools, publishing, dry run."""
