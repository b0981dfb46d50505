"""Grouping of adjacent samples into one (`--group-by`), such as the steps of an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import SampleError, few
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.formats.files import whole
from tar2tf_cli.formats.listed import Listed
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.structs import dataclass

_NO_GROUP: Final = "name samples GROUP/NAME, such as --key '<input>/<n:06>'"
_ONCE: Final = "leave it out of --group-once, so that the group has a list of it"
_TWO: Final = "if these are two groups, distinguish them: --key '<input>/<key>'"


class Neighbours(NamedTuple):
    """The neighbours of an input, if a group of samples may continue in the next input.

    Attributes:
        following: the following inputs, in order.
        is_first: whether it is the first input.
    """

    following: Iterable[ObjectInfo]
    is_first: bool

    @classmethod
    def of(cls, items: Sequence[ObjectInfo], lanes: Sequence[str], number: int) -> Neighbours:
        """Return the neighbours of an input in its lane.

        Args:
            items: all inputs.
            lanes: the lane of each.
            number: the input's number.
        """
        lane = lanes[number]
        following = (items[other] for other in range(number + 1, len(items)) if lanes[other] == lane)
        return cls(following, lanes.index(lane) == number)


class _Member(NamedTuple):
    """A sample of a group, with the number of its input: 0, or more for a following input."""

    group: str
    sample: Sample
    source: int


@dataclass(frozen=True)
class SampleGroups:
    """Merges adjacent samples whose keys are equal up to the last `/`, with one group at a time in memory.

    An entry NAME becomes PREFIX/NAME, a list or an array with the value of each sample of the group, even of a single
    one. Grouping is the inverse of the op `explode`.

    Attributes:
        prefix: the beginning of the names of entries that have a value for each sample.
        once: names or globs of entries that are equal in all samples of a group, and keep their names and values.
        most: the largest number of bytes that a group may hold.
    """

    prefix: str
    once: Sequence[str]
    most: int

    def apply(
        self,
        inputs: Iterable[Iterable[Sample]],
        report: InputReport,
        on_fault: Callable[[SampleError], None],
        *,
        continues: bool = False,
    ) -> Iterator[Sample]:
        """Iterate over the groups of an input.

        Args:
            inputs: the samples of the input and of the following inputs, in order.
            report: receives the keys of the groups.
            on_fault: called with the error of a group that cannot be merged, or of a sample without a group.
            continues: whether the first group began in an earlier input.
        """
        seen = set[int]()
        for group, members in groupby(self._own(inputs, report, on_fault, continues), key=attrgetter("group")):
            if (hashed := key_hash(group)) in seen:
                message = f"--group-by: the samples of the group {group!r} are not adjacent"
                on_fault(SampleError(message, key=group, hint="sort them by key, and convert them again"))
                continue
            seen.add(hashed)
            report.groups.append(group)
            try:
                yield self._grouped(group, self._limited(members))
            except SampleError as error:  # groupby skips the rest of the group
                error.key = group
                on_fault(error)

    def _own(
        self,
        inputs: Iterable[Iterable[Sample]],
        report: InputReport,
        on_fault: Callable[[SampleError], None],
        continues: bool,
    ) -> Iterator[_Member]:
        """Iterate over the samples of the groups that an input owns: those that begin after its first sample.

        Each group thus belongs to one input, and reading an input does not depend on earlier ones. The group that
        begins with the first sample of the next input belongs to this input, as its samples are read in any case to
        find its end. Faults of following inputs are reported with those inputs.
        """
        group: str | None = None
        is_own = True
        for source, samples in enumerate(inputs):
            for name, sample in self._with_groups(samples, _ignore if source else on_fault):
                if name != group:
                    if report.group_after:
                        return
                    is_own = group is not None or not continues
                    group = name
                if source:
                    report.group_after[name] = report.group_after.get(name, 0) + 1
                if is_own:
                    yield _Member(name, sample, source)
                else:
                    report.group_before[name] = report.group_before.get(name, 0) + 1

    @staticmethod
    def _with_groups(
        samples: Iterable[Sample], on_fault: Callable[[SampleError], None]
    ) -> Iterator[tuple[str, Sample]]:
        for sample in samples:
            group, separator, _ = str(sample[KEY]).rpartition("/")
            if separator and group:
                yield group, sample
            else:
                message = "--group-by: the key has no '/', so the sample belongs to no group"
                on_fault(SampleError(message, key=str(sample[KEY]), hint=_NO_GROUP))

    def _limited(self, members: Iterable[_Member]) -> list[Sample]:
        """Return the samples of a group as a list of limited size.

        Raises:
            SampleError: when the group is too large, or a key is in two inputs.
        """
        size, some = 0, list[_Member]()
        for member in members:
            size += sum(map(_size, member.sample.values()))
            if size > self.most:
                message = f"--group-by: a group holds more than {self.most:,} bytes"
                raise SampleError(message, hint="raise --max-entry-size, if there is memory for it")
            some.append(member)
        if some[0].source != some[-1].source:
            sources: dict[str, int] = {}
            for _, sample, source in some:
                if sources.setdefault(sample[KEY], source) != source:
                    raise SampleError(f"--group-by: the sample {sample[KEY]!r} is in two inputs", hint=_TWO)
        return [sample for _, sample, _ in some]

    def _grouped(self, group: str, samples: Sequence[Sample]) -> Sample:
        first = samples[0]
        for sample in samples:
            if others := sample.keys() ^ first.keys():
                message = f"--group-by: {sample[KEY]!r} and {first[KEY]!r} differ in {few(sorted(others))}"
                raise SampleError(message, hint="keep entries that all samples have: --op keep")
        made: Sample = {KEY: group}
        for name in first:
            if name == KEY:
                continue
            values = [whole(sample[name]) for sample in samples]
            if any(fnmatchcase(name, pattern) for pattern in self.once):
                made[name] = _common_value(name, values)
            else:
                made[f"{self.prefix}/{name}"] = _combine(name, values)
        return made


def _ignore(fault: SampleError) -> None:
    pass


def _size(value: object) -> int:
    return int(getattr(value, "nbytes", 0)) or (len(value) if isinstance(value, (bytes, str)) else 8)


def _common_value(name: str, values: Sequence[Any]) -> Any:
    """Return the common value of all samples of a group.

    Raises:
        SampleError: when they differ.
    """
    first = values[0]
    for value in values:
        same = value is first or (type(value) is type(first) and np.array_equal(value, first))
        if not same and not (_is_nan(value) and _is_nan(first)):
            raise SampleError(f"--group-once: {name!r} differs among the samples of the group", hint=_ONCE)
    return first


def _is_nan(value: object) -> bool:
    return isinstance(value, (float, np.floating)) and value != value


def _combine(name: str, values: Sequence[object]) -> object:
    """Combine the values of a group: stack arrays along a first dimension, and concatenate numbers and lists.

    Texts and objects become a list.

    Raises:
        SampleError: when their shapes differ.
    """
    if isinstance(values[0], (bytes, str, Mapping)):
        return list(values)
    arrays = [np.asarray(value) for value in values]
    if shapes := {array.shape for array in arrays} - {arrays[0].shape}:
        message = f"--group-by: {name!r} has the shapes {arrays[0].shape} and {min(shapes)} in one group"
        raise SampleError(message, hint="leave it out (--op 'keep:…'), or pad it to one shape")
    if arrays[0].ndim == 0 or isinstance(values[0], Listed):
        return np.concatenate([np.atleast_1d(array) for array in arrays]).view(Listed)
    return np.stack(arrays)
