"""What all tests share: no deadlines for property tests on a busy machine, and a quiet TensorFlow."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

settings.register_profile("tar2tf", deadline=None)
settings.load_profile("tar2tf")
