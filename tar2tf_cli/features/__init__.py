"""Samples in, features out: selections, types, presets, and the example in memory."""
