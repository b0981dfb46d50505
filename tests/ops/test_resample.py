"""resample: sound at another rate."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.ops import OpContext, parse_op


def sound(rate: int = 8000, seconds: float = 0.5) -> np.ndarray:
    time = np.arange(int(rate * seconds)) / rate
    return np.stack([np.sin(2 * np.pi * 440 * time), np.cos(2 * np.pi * 220 * time)], 1).astype("f4")


def test_sound_at_another_rate_is_the_same_sound() -> None:
    pytest.importorskip("soxr")
    sample = {"__key__": "a", "wav": sound(), "wav/sample_rate": 8000}
    made = parse_op("resample:wav,16000").apply(sample, OpContext())
    assert isinstance(made, dict)
    assert (made["wav"].shape, made["wav"].dtype, made["wav/sample_rate"]) == ((8000, 2), np.float32, 16000)
    np.testing.assert_allclose(made["wav"][400:-400], sound(16000)[400:-400], atol=1e-3)


def test_sound_of_that_rate_is_left_as_it_is() -> None:
    before = sound()
    made = parse_op("resample:wav,8000").apply({"__key__": "a", "wav": before, "wav/sample_rate": 8000}, OpContext())
    assert isinstance(made, dict)
    assert made["wav"] is before


def test_encoded_sound_is_faulty_and_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    op = parse_op("resample:wav,16000")
    with pytest.raises(SampleError, match=r"is not decoded sound; add .*decode:wav before it"):
        op.apply({"__key__": "a", "wav": b"RIFF", "wav/sample_rate": 8000}, OpContext())
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(UsageError, match="resample needs the package soxr; pip install"):
        op.apply({"__key__": "a", "wav": sound(), "wav/sample_rate": 8000}, OpContext())
