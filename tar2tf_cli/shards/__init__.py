"""The shard formats, one file each: what other rooms need to know of a tar or a TFRecord, as one object.

A file that is put here is a format: its `FORMAT` is a `ShardFormat` (`api/shard_format.py`).
"""
