"""Random orders of the records of a dataset, computed from a seed for each epoch without storing a permutation.

The record at any position depends on seed, epoch and position alone, so that a reader continues from the number of
records that it has read, and several hosts divide an epoch without communication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN: Final = 0x9E3779B97F4A7C15
_ROUNDS: Final = 6
_64_BITS: Final = (1 << 64) - 1


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
