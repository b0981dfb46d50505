"""Inputs other than a tar in a bucket: lists of files or rows, pipeline stages, open files, and shards of any kind."""
