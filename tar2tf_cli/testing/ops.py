"""The test suite that every op passes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping

import pytest

from tar2tf_cli.api.op import Op, OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.ops.base import apply_ops, parse_op


class OpSuite:
    """Tests of an op with a given sample.

    Override the fixtures `op` and `sample`; the sample is one that the op accepts.
    """

    @pytest.fixture
    def op(self) -> Op:
        """Return the op under test."""
        raise NotImplementedError

    @pytest.fixture
    def sample(self) -> Sample:
        """Return a sample that the op accepts."""
        raise NotImplementedError

    def results(self, op: Op, sample: Sample) -> list[Mapping[str, object]]:
        """Apply the op to a copy of the sample, and return the results in a comparable form."""
        made = apply_ops(copy.deepcopy(sample), [op], OpContext(seed=7))
        return [{name: pickle.dumps(value) for name, value in one.items()} for one in made]

    def test_every_result_has_a_key(self, op: Op, sample: Sample) -> None:
        assert all(KEY in one for one in self.results(op, sample))

    def test_equal_samples_give_equal_results(self, op: Op, sample: Sample) -> None:
        assert self.results(op, sample) == self.results(op, sample)

    def test_a_pickled_op_gives_the_same_results(self, op: Op, sample: Sample) -> None:
        assert self.results(pickle.loads(pickle.dumps(op)), sample) == self.results(op, sample)

    def test_its_canonical_form_is_parsed_to_an_equal_op(self, op: Op, sample: Sample) -> None:
        again = parse_op(op.canonical())
        assert again.canonical() == op.canonical()
        assert self.results(again, sample) == self.results(op, sample)

    def test_its_examples_are_parsed(self, op: Op) -> None:
        assert op.examples
        for text in op.examples:
            assert type(parse_op(text)) is type(op)
