"""Conversions inside an AIStore cluster: the settings of its transformers, what they send, and the transformer itself."""
