"""The APIs of older tools, the AIS tar2tf client, go-tfdata and TFRecorder, as thin layers over this package."""
