"""The error policy: raise the first fault, or record and skip each until there are too many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tar2tf_cli.errors import LackingError, MissingNameError, Tar2tfError, count
from tar2tf_cli.inputs.report import fault_note

IsHalf: TypeAlias = Callable[[], bool]


def _never() -> bool:
    return False


class FaultPolicy:
    """Decides about every fault of an input or dataset, whether of a sample in any stage or of the shard itself.

    If a sample lacks an entry or feature that an option names, the option may be wrong rather than the sample. With
    `first`, such faults are therefore held until a sample of the input has the name (`release`), or until the input
    ends (`finish`).

    Args:
        skip: whether faulty samples are recorded and skipped.
        most: the maximum number of skipped samples; None for no limit.
        noted: receives the shard, key, member, offset and message of each skipped sample, and `lost` if a part of the
            shard was unreadable.
        option: the option by which users skip faulty samples; None if there is none.
        shard: path or URL of the input, if all faults are of one input.
        first: whether that is the first input, whose samples show which entries and features exist.

    Attributes:
        undecided: whether faults are held, because no sample so far had every entry and feature that options name.
    """

    def __init__(
        self,
        *,
        skip: bool = False,
        most: int | None = None,
        noted: list[dict[str, object]] | None = None,
        option: str | None = None,
        shard: str | None = None,
        first: bool = False,
    ) -> None:
        self._skip = skip
        self._most = most
        self._noted = [] if noted is None else noted
        self._hint = f"correct the sample, or skip such samples with {option}" if option else None
        self._shard = shard
        self.undecided = first
        self._names: set[str] = set()  # entries or features of the samples whose faults were held
        self._held: list[MissingNameError] = []

    def __call__(self, error: Tar2tfError, is_half: IsHalf = _never) -> None:
        """Hold a fault, skip its sample or raise it.

        Args:
            error: the fault.
            is_half: returns whether a sample that lacks an entry is not faulty, because it has more members to regroup.

        Raises:
            Tar2tfError: the fault itself, or an error about too many faults.
        """
        error.at(shard=self._shard)
        if not (self.undecided and isinstance(error, MissingNameError)):
            self._decide(error, is_half)
            return
        self._names.update(error.names)
        if self._skip or not self._held:  # otherwise the first fault is enough
            error.__traceback__ = None  # the traceback would keep the sample in memory
            self._held.append(error)
        if all(held.name in self._names for held in self._held):
            self.release(is_half)

    def release(self, is_half: IsHalf = _never) -> None:
        """Decide about the held faults, once a sample with every named entry and feature is known."""
        self.undecided = False
        held = self._held[:]
        self._held.clear()
        for error in held:
            self._decide(error, is_half)

    def finish(self) -> None:
        """Decide about the faults still held at the end of the input.

        Raises:
            UsageError: when none of its samples has an entry or feature that an option names.
        """
        for error in self._held:
            if error.name not in self._names:
                raise error.usage_error(self._names, self._shard)
        if self.undecided:
            self.release()

    def _decide(self, error: Tar2tfError, is_half: IsHalf) -> None:
        if isinstance(error, LackingError) and is_half():
            return
        if not self._skip:
            raise error.at(hint=self._hint)
        self._noted.append(fault_note(error))
        if self._most is not None:
            check_most(len(self._noted), self._most, self._noted)


def check_most(failed: int, most: int, noted: Sequence[Mapping[str, object]]) -> None:
    """Check that no more than `most` samples were skipped.

    Args:
        failed: number of skipped samples.
        most: the maximum number.
        noted: the errors of the newly skipped samples.

    Raises:
        Tar2tfError: when there are more than `most`.
    """
    if failed > most:
        hint = f"the first: {noted[0]['message']}" if noted else None
        raise Tar2tfError(f"{count(failed, 'sample')} failed, more than --max-errors {most} allows", hint=hint)
