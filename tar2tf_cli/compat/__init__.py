"""The faces of older tools: the AIS tar2tf client, go-tfdata and TFRecorder, each thin over the rooms below."""
