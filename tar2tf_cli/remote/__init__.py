"""Conversions inside an AIStore cluster, by transformers that run beside the shards.

Where the command runs, `choose` decides whether the cluster makes the records, `deploy` makes and deletes transformers,
and `source` reads what they send. In the cluster's pods, `server` answers requests, `transform` makes the answer for
one object, and `object_files` says which files it may read. Both sides share `settings`, what a transformer does, and
`stream`, what it sends.
"""
