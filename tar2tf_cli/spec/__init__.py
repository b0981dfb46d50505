"""User input in, one validated `Conversion` out: YAML files, output paths, templates, URLs."""
