"""Readers of shards: `load_dataset` for TensorFlow, `open_records` for random access, side files for other readers."""
