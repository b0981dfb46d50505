"""Random orders of the records of a dataset, computed from a seed for each epoch without storing a permutation.

The record at any position depends on seed, epoch and position alone, so that a reader continues from the number of
records that it has read, and several hosts divide an epoch without communication.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops.rules import accepted, integer, optional, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN: Final = 0x9E3779B97F4A7C15
_ROUNDS: Final = 6
_64_BITS: Final = (1 << 64) - 1


def number_of_examples(value: object, name: str, least: int) -> int:
    """Return an argument that is a number of examples, which may also be a NumPy integer.

    Raises:
        UsageError: when it is not a whole number, or less than `least`.
    """
    number = integer(value)
    if number is None or number < least:
        raise UsageError(f"{name} must be a number of examples, {least} or more, not {value!r}")
    return number


def share_of_host(shard: object) -> tuple[int, int]:
    """Return an argument `(hosts, host)` as numbers.

    Raises:
        UsageError: when it is anything else, or there is no such host.
    """
    match [integer(number) for number in shard] if isinstance(shard, Iterable) else ():
        case [int(hosts), int(host)] if 0 <= host < hosts:
            return hosts, host
    raise UsageError(f"shard must be (hosts, host), such as (4, 0) to (4, 3), not {shard!r}")


def seed_of_orders(seed: object) -> int | None:
    """Return an argument that is a seed, or None, as an integer of Python, because NumPy's would overflow.

    Raises:
        UsageError: when it is not a whole number.
    """
    return accepted(optional(whole_number()), seed, "seed")


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of one epoch's order, a number from 0 to 2^63 - 1."""
    return int(_mix_bits(np.array([(seed + 1) * _GOLDEN + epoch & _64_BITS], np.uint64))[0]) >> 1


def permuted(seed: int, positions: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Return the record numbers at some positions of a random permutation of `total` records.

    A Feistel network over an even number of bits is applied until the result is less than `total`. It equals `permuted`
    in formats/kernel/records.h.
    """
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    mask, width = np.uint64((1 << half) - 1), np.uint64(half)
    keys = _mix_bits(np.array([seed + (number + 1) * _GOLDEN & _64_BITS for number in range(_ROUNDS)], np.uint64))
    numbers = positions.astype(np.uint64)
    wanted = np.arange(len(numbers))
    while len(wanted):
        left, right = numbers[wanted] >> width, numbers[wanted] & mask
        for key in keys:
            left, right = right, left ^ (_mix_bits(right ^ key) & mask)
        numbers[wanted] = left << width | right
        wanted = wanted[numbers[wanted] >= total]
    return numbers.astype(np.int64)


def _mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of numbers, as the finalizer of splitmix64 does."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = numbers ^ numbers >> np.uint64(31)
    return mixed
