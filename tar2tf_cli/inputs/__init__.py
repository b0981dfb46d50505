"""Inputs of conversions as samples: tars, TFRecords, image folders, table rows, open files and stages; shard sets."""
