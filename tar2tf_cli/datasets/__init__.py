"""Shards in, `tf.data.Dataset` out: `Dataset`, `AisDataset`, `load_dataset`, and the parsers of records."""
