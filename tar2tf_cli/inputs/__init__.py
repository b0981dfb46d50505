"""Inputs in, samples out: tars, image folders, rows of a CSV file, open files, pipeline stages; shards for checks."""
