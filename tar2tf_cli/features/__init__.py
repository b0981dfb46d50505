"""Makes features from samples: selections, types, presets, labels, and the example in memory."""
