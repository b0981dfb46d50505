"""Samples in, features out: selections applied, types, presets, and the example in memory."""
