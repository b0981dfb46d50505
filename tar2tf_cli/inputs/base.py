"""Sources that are long lists of files or rows: ordered, and divided into inputs that do not depend on the workers."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.base import Abilities, OnBytes, OnFault, Samples, Source

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport


CHUNK: Final = 128
"""Files or rows per input. More would leave workers idle at the end, fewer would make the manifest long."""

_SMALLEST: Final = 32
_LARGEST: Final = 2048

T = TypeVar("T")


_LIST: Final = Abilities(gives="values", ordered=True, threads=1)


class ListSource(Source):
    """A long list of files or rows, divided into inputs; shuffling and the limit apply to the whole list."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.skipped: Counter[str] = Counter()

    @abstractmethod
    def samples(self, item: ObjectInfo, report: InputReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield the samples of an input, each with its file or row as `member`."""

    def abilities(self) -> Abilities:
        """Return those of a list of samples."""
        return _LIST

    def open(self, item: ObjectInfo) -> ByteStream:
        """Not supported: a list is not one stream."""
        raise NotImplementedError

    def locate(self, name: str) -> str:
        """Return the bucket's path; the sample names the file or row."""
        return self.bucket


def shuffled(items: list[T], seed: int | None, name_of: Callable[[T], str]) -> list[T]:
    """Shuffle items by seed and name, the same way on every machine; without a seed, leave them in order."""
    if seed is None:
        return items
    prefix = f"{seed}\0"

    def rank(item: T) -> bytes:
        return blake2b((prefix + name_of(item)).encode("utf-8", "surrogateescape"), digest_size=8).digest()

    return sorted(items, key=rank)


def divided(
    noun: str, items: list[T], describe: Callable[[T], tuple[int, bytes]], shards: int | None = None
) -> Iterator[tuple[ObjectInfo, list[T]]]:
    """Divide items into chunks of neighbours, each with the input made of it.

    Args:
        noun: what the items are called; inputs are named by position, from 1: `rows 1-128`, `rows 129-256`.
        items: the items, in order.
        describe: returns an item's size in bytes and its version, which changes when its bytes do.
        shards: the number of shards of equal count to make. Each of them is then one chunk, the larger ones first,
            unless they are very small or very large.
    """
    least, larger = divmod(len(items), shards or 1)
    counts = [CHUNK] * -(-len(items) // CHUNK)
    if shards and _SMALLEST <= least < _LARGEST:
        counts = [least + (number < larger) for number in range(shards)]
    first = 0
    for count in counts:
        chunk = items[first : first + count]
        size, version = 0, blake2b(digest_size=16)
        for item in chunk:
            added, described = describe(item)
            size += added
            version.update(described)
        yield ObjectInfo(f"{noun} {first + 1}-{first + len(chunk)}", size, version.hexdigest()), chunk
        first += count
