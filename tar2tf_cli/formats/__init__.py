"""File formats: tar, compression, TFRecord, Example, images; bytes in, values out, and back."""
