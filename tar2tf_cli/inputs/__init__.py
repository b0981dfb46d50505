"""Inputs that are not one tar each: lists of files or rows, a pipeline's stages, open files, shards of either kind."""
