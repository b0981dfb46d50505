"""The shard formats, one file each: everything that depends on whether a shard is a tar or a TFRecord.

Each module of this folder is a format: its `FORMAT` is a `ShardFormat` (`api/shard_format.py`).
"""
