"""Shards in, datasets out: `load_dataset` for TensorFlow, `open_records` in any order, and files for other readers."""
