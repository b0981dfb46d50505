"""File formats: tar, compression, TFRecord, Example and images, each read from bytes and written to bytes."""
