"""What a user asks for in, one validated `Conversion` out: YAML files, output paths, templates, URLs."""
