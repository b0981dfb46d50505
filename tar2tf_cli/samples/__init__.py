"""Groups the members of a tar into samples: dicts of the members that share a key."""
