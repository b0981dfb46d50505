"""Every op passes the suite that is shipped for ops, with each of its examples."""

from __future__ import annotations

import io

import numpy as np
import PIL.Image
import pytest

from op_cases import encoded
from tar2tf_cli.api.op import Op
from tar2tf_cli.api.values import Sample
from tar2tf_cli.formats.npy import to_npy
from tar2tf_cli.ops import OPS, Decode, parse_op
from tar2tf_cli.ops.image import ImageOp
from tar2tf_cli.testing import OpSuite

WITHOUT_FILES = [flag for op in OPS.values() if op.name != "func" for flag in op.examples]


def stored() -> Sample:
    """A sample with an entry for each example of an op, as a tar holds them."""
    mask = io.BytesIO()
    PIL.Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8), "P").save(mask, "PNG")
    wav = io.BytesIO()
    import soundfile

    soundfile.write(wav, np.zeros((80, 1)), 8000, format="WAV")
    return {
        "__key__": "a",
        "jpg": encoded((24, 32)),
        "png": encoded((24, 32), "PNG"),
        "seg.png": mask.getvalue(),
        "npy": to_npy(np.arange(3)),
        "wav": wav.getvalue(),
        "cls": b"3",
        "json": b'{"score": 0.7}',
        "steps/reward": np.arange(3),
    }


class TestEveryOp(OpSuite):
    """The suite for each example of each op but `func`, which needs a file."""

    @pytest.fixture(params=WITHOUT_FILES)
    def op(self, request: pytest.FixtureRequest) -> Op:
        if request.param.startswith("resample"):
            pytest.importorskip("soxr")
        return parse_op(request.param)

    @pytest.fixture
    def sample(self, op: Op) -> Sample:
        sample = stored()
        if op.name == "resample":
            return {**sample, "wav": np.zeros((80, 1), "f4"), "wav/sample_rate": 8000}
        if isinstance(op, ImageOp) and not isinstance(op, Decode):
            return {**sample, "jpg": np.zeros((24, 32, 3), np.uint8), "png": np.zeros((24, 32, 1), np.uint8)}
        return sample
