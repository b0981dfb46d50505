"""Turns the samples of one input into encoded examples: selection, ops, features and the error policy."""
