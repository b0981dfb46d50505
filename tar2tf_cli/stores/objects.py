"""Access to single objects of any store with retries: lookup, a stream that resumes, and a read in one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, BulkStore, NoSuchObject, Store
from tar2tf_cli.errors import SourceError
from tar2tf_cli.formats.streams import read_to_end
from tar2tf_cli.stores.retries import call_with_retries
from tar2tf_cli.stores.transfer import ParallelStream

_PARALLEL: Final = 32

T = TypeVar("T")


def retry(store: Store, request: Callable[[], T], shard: str, offset: int | None = None) -> T:
    """Call a function that sends a request, and retry it for as long as the store's `retry_for` allows.

    Args:
        store: the store.
        request: sends the request.
        shard: URL of the object, for errors.
        offset: offset in the object, for errors.

    Raises:
        SourceError: when no attempt succeeded.
    """
    return call_with_retries(request, store.retry_for, shard=shard, offset=offset)


def note_round_trip(store: Store, began: float) -> None:
    """Record the time since a request began as an upper limit of the store's round-trip time."""
    store.round_trip = min(store.round_trip, time.monotonic() - began)


def look_up(store: Store, name: str) -> ObjectInfo | None:
    """Look up one object as `Store.head` does, with retries."""
    began = time.monotonic()
    item = retry(store, lambda: store.head(name), store.locate(name))
    note_round_trip(store, began)
    return item


def look_up_each(store: Store, names: Sequence[str]) -> dict[str, ObjectInfo]:
    """Look up objects with many concurrent requests and retries, and return those that exist by name."""
    began = time.monotonic()
    known = store.head_each(names) if isinstance(store, BulkStore) else {}
    if known:
        note_round_trip(store, began)
    rest = [name for name in names if name not in known]
    found = {name: known[name] for name in names if name in known}
    if rest:
        with ThreadPoolExecutor(min(_PARALLEL, len(rest))) as pool:
            found.update(zip(rest, pool.map(partial(look_up, store), rest), strict=True))
    return {name: item for name in names if (item := found[name])}


def open_object(store: Store, item: ObjectInfo, start: int = 0) -> ParallelStream:
    """Open a stream of an object's bytes from an offset on, which is 0 unless the object's version is known.

    It resumes after failures; the first read raises any error.
    """
    fetch = partial(_fetch, store, item)
    stream = ParallelStream(fetch, item, store.locate(item.name), store.retry_for, watched=store.may_stall)
    stream.start = start
    return stream


def read_object(store: Store, name: str) -> bytes | None:
    """Return a small object's bytes, in one request with retries; None when it does not exist."""
    try:
        return read_to_end(open_object(store, ObjectInfo(name, None, None)))
    except NoSuchObject:
        return None


def _fetch(store: Store, item: ObjectInfo, start: int, size: int | None) -> Body:
    began = time.monotonic()
    try:
        body = store.fetch(item, start, size)
        note_round_trip(store, began)
        return body
    except NoSuchObject as error:
        if item.version is None:
            raise
        hint = "restore it and run the same command again"
        raise SourceError("was deleted after it had been listed", shard=error.shard, hint=hint) from None
