"""Checks across inputs that no group of samples (`--group-by`) is made twice or lacks samples."""

from __future__ import annotations

from array import array
from typing import Final

from tar2tf_cli.conversion.plan import Plan
from tar2tf_cli.conversion.sharding import DuplicateIndex
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.inputs.report import InputReport

_APART: Final = "and each input is an output of its own (<input>), or can be read only once"
_JOIN: Final = "leave <input> out of the output path; or if these are two groups: --key '<input>/<key>'"
_AGAIN: Final = "add --regroup if members of its samples are not adjacent; leave the input out if it is damaged"


class GroupCheck:
    """Checks that each group of samples (`--group-by`) was made once, from all its samples.

    Args:
        plan: the conversion.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._go_on = bool(plan.group_lanes)
        self._known: dict[str, DuplicateIndex] = {}  # the groups of each lane
        self._after: dict[str, dict[str, int]] = {}  # samples that a lane's last input read from later ones
        self._last = ""  # the last group of the last input with one

    def add(self, number: int, report: InputReport) -> None:
        """Check the groups of the next input, given its number.

        Raises:
            SampleError: when samples of one group are in two inputs that are not adjacent or must not share groups, or
                when the continuation of a group was not found.
        """
        shard = self._plan.source.locate(self._plan.inputs[number].name)
        lane, groups = self._plan.stems[number], report.groups
        if not self._go_on:
            if groups and groups[0] == self._last:
                message = f"--group-by: samples of the group are in the input before, too, {_APART}"
                raise SampleError(message, shard=shard, key=groups[0], hint=_JOIN)
            self._last = groups[-1] if groups else self._last
            return
        before, self._after[lane] = self._after.get(lane, report.group_before), report.group_after
        if before != report.group_before and self._plan.conversion.limit is None:
            message = "--group-by: the group that begins the input was not read twice in the same way"
            raise SampleError(message, shard=shard, key=next(iter(before), None), hint=_AGAIN)
        known = self._known.setdefault(lane, DuplicateIndex())
        hashes = array("Q", map(key_hash, groups))
        known.among(hashes, array("Q", [1]) * len(hashes))
        if known.repeated:
            group = groups[known.repeated[0]]
            message = "--group-by: samples of the group are in an earlier input, too, which is not the one before"
            raise SampleError(message, shard=shard, key=group, hint="name the inputs in their order")
