"""Bytes and what they mean: tar, compression, TFRecord, Example, images; bytes in, values out, and back."""
