"""Conversions inside an AIStore cluster: settings of its transformers, what they send, and the transformer itself."""
