"""Members of a tar in, samples out: dicts of the members that share a key."""
