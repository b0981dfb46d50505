"""Conversions inside an AIStore cluster: what its transformers are told, what they send, and the transformer itself."""
