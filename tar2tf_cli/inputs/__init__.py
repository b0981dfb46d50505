"""Inputs in, samples out: tars, TFRecords, image folders, rows of a file, open files, stages; shards for checks."""
