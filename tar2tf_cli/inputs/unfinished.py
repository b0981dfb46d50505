"""Unfinished conversions, detected by the files that they keep next to their shards until the manifest is written.

In a local folder, this is the working folder, `.NAME-manifest.tar2tf`, whose journal names the shards. In a bucket, it
is the claim, an object in a hidden folder of the same name, which a conversion writes before its first shard.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeVar

from tar2tf_cli.errors import Tar2tfError, UsageError
from tar2tf_cli.spec.templates import PathTemplate
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tar2tf_cli.api.source import Source
    from tar2tf_cli.api.store import Store

_WORKING: Final = ".tar2tf"
"""End of the names of folders with unfinished work."""

_CLAIM: Final = r"(\..+\.tar2tf)/claim"

_MOST_FOLDERS: Final = 16

Path = TypeVar("Path", str, Sequence[str])


class Unfinished(NamedTuple):
    """A conversion that is running, or has not written all of its shards.

    Attributes:
        path: path or URL of the folder of its unfinished work.
        manifests: path or URL of the manifest that it will write, and of the one that an earlier version wrote.
        folder: the folder of the manifest, with a slash at its end unless it is empty.
        shards: a regular expression that matches the paths of its shards in that folder.
    """

    path: str
    manifests: tuple[str, str]
    folder: str
    shards: re.Pattern[str]

    @property
    def manifest(self) -> str:
        """The path or URL of the manifest that the conversion will write."""
        return self.manifests[0]

    def writes(self, shard: str) -> bool:
        """Whether the conversion writes the shard with this path or URL."""
        return shard.startswith(self.folder) and bool(self.shards.match(shard[len(self.folder) :]))


def unfinished_at(manifest: str, source: Source | None = None) -> list[Unfinished]:
    """Return the unfinished conversions of a manifest; in a bucket, given the source of its folder."""
    return [one for one in _unfinished_in([os.path.dirname(manifest)], source) if manifest in one.manifests]


def unfinished_of(shards: Sequence[str], source: Source | None = None) -> list[Unfinished]:
    """Return the unfinished conversions that will write any of these shards, given by path or URL."""
    folders = dict.fromkeys(map(os.path.dirname, {path[: path.rfind("/") + 1]: None for path in shards}))
    above = [os.path.dirname(folder) for folder in folders]  # parents of folders that are named after splits
    return [one for one in _unfinished_in([*folders, *above], source) if any(map(one.writes, shards))]


def search(
    find: Callable[[Path, Source | None], Sequence[Unfinished]], path: Path, source: Source
) -> Collection[Unfinished]:
    """Search for unfinished conversions; in a bucket, in a thread that only a use of the result waits for."""
    if source.store is None:
        return find(path, source)
    from tar2tf_cli.stores.retries import in_thread  # slow to import, and only for buckets

    return _Searched(in_thread(lambda: find(path, source))[1])


class _Searched:
    """The result of a search that may still go on; no subclass of Sequence, whose creation slows down every start.

    Args:
        search: the search.
    """

    def __init__(self, search: Future[Sequence[Unfinished]]) -> None:
        self._search = search

    def __iter__(self) -> Iterator[Unfinished]:
        return iter(self._search.result())

    def __len__(self) -> int:
        return len(self._search.result())

    def __contains__(self, one: object) -> bool:
        return one in self._search.result()

    def __reduce__(self) -> tuple[object, ...]:
        return list, (self._search.result(),)


def _unfinished_in(folders: Iterable[str], source: Source | None) -> Iterator[Unfinished]:
    """Yield the unfinished conversions in folders; those of a bucket are searched concurrently."""
    several = [*islice(dict.fromkeys(folders), _MOST_FOLDERS)]
    store = source and source.store
    if source and store:
        from tar2tf_cli.stores.retries import in_thread  # slow to import, and only for buckets

        hidden = [hidden_in(folder, source) for folder in several]
        searches = [
            in_thread(partial(_claimed_in, folder, store, names))[1]
            for folder, names in zip(several, hidden, strict=True)
        ]
        yield from chain.from_iterable(search.result() for search in searches)
        return
    for folder in several:
        if os.path.isdir(folder or "."):
            yield from _working_in(folder)


def _working_in(folder: str) -> Iterator[Unfinished]:
    """Yield the conversions whose working folders are in a local folder."""
    names = list[str]()
    with suppress(OSError):  # a folder without permission to list it
        names += sorted(os.listdir(folder or "."))
    for name in names:
        if name.startswith(".") and name.endswith(_WORKING):
            import json  # only here, as few folders have such a folder

            with suppress(OSError, ValueError, LookupError, TypeError, UsageError):
                with open(os.path.join(folder, name, "journal"), "rb") as journal:
                    head = json.loads(journal.readline().rpartition(b" ")[0])
                yield _unfinished(folder, name, head)


def hidden_in(folder: str, source: Source) -> list[str] | None:
    """Return the names of hidden objects in a folder of a bucket; None unless a listing of the source covered them."""
    top = source.locate("")
    inside = f"{folder}/"[len(top) :] + "."
    listed = (names for prefix, names in source.listing_info().hidden.items() if inside.startswith(prefix))
    if not f"{folder}/".startswith(top) or (names := next(listed, None)) is None:
        return None
    return [name[len(inside) - 1 :] for name in names if name.startswith(inside)]


def _claimed_in(folder: str, store: Store, hidden: Sequence[str] | None) -> list[Unfinished]:
    """Return the conversions with a claim in a bucket's folder; none if it is not writable or listable.

    `hidden` has the names of hidden objects in the folder; None if they were not listed.
    """
    import json

    from tar2tf_cli.api.store import at_folder
    from tar2tf_cli.stores.objects import read_object, retry
    from tar2tf_cli.stores.schemes import is_writable

    top = at_folder(store, "").locate("")
    claimed: list[Unfinished] = []
    if not (store.can_list and is_writable(type(store)) and f"{folder}/".startswith(top)):
        return claimed
    there = at_folder(store, f"{folder}/"[len(top) :])
    with suppress(Tar2tfError, ValueError, LookupError, TypeError):
        names = hidden
        if names is None:
            names = [item.name for item in retry(there, lambda: [*there.list(".")], folder)]
        for name in names:
            if match := re.fullmatch(_CLAIM, name):
                claim = json.loads(read_object(there, name) or b"")
                one = _unfinished(folder, match[1], claim)
                if not _is_written(there, one, claim["conversion"]):
                    claimed.append(one)
    return claimed


def _is_written(folder: Store, one: Unfinished, conversion: str) -> bool:
    """Whether a conversion has written its manifest, but was killed before removing its claim."""
    from tar2tf_cli.inputs.manifest import Manifest  # slow to import, and only for manifests
    from tar2tf_cli.stores.objects import read_object

    data = read_object(folder, one.manifest.rpartition("/")[2])
    return data is not None and Manifest.from_bytes(data, one.manifest).conversion == conversion


def _unfinished(folder: str, name: str, head: Mapping[str, str]) -> Unfinished:
    """Return a conversion, given its hidden folder's name and the content of its journal or claim."""
    stem = name[1:].removesuffix(_WORKING)
    folder = f"{folder.rstrip('/')}/" if folder else ""
    regex = PathTemplate.parse(head["shards"]).regex()
    return Unfinished(f"{folder}{name}", (f"{folder}_{stem}.json", f"{folder}{stem}.json"), folder, regex)
