"""What all tests share: no deadlines on a busy machine, a quiet TensorFlow, and Ctrl-C that a shell has not put off."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

settings.register_profile("tar2tf", deadline=None)
settings.load_profile("tar2tf")

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background starts without
