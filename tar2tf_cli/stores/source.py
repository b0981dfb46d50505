"""The source of shards in an object store."""

from __future__ import annotations

import io
import os
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, TypeAlias

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.source import IN_FLIGHT, Capabilities, DistantSource, ListingInfo, OnFile
from tar2tf_cli.api.store import Body, BulkStore, Store
from tar2tf_cli.errors import NothingFoundError, SourceError
from tar2tf_cli.formats.streams import read_to_end
from tar2tf_cli.spec.templates import expand, from_aistore, is_glob, is_numbered, resolve
from tar2tf_cli.stores.base import ReadAhead, templates_of
from tar2tf_cli.stores.objects import look_up, look_up_each, note_round_trip, open_object, retry
from tar2tf_cli.stores.ranges import ObjectRanges
from tar2tf_cli.stores.transfer import ResumingStream, fetch_threads, whole_body

SMALL: Final = 1 << 18
"""Bytes of the largest object that is held in memory while others are on their way."""

_LIST_FROM: Final = 16
"""Number of names from which one listing is cheaper than a request for each."""

Bodies: TypeAlias = "Generator[Body | None, None, None] | None"


class ObjectSource(DistantSource):
    """The shards in an object store; a bucket URL that names one object is that single shard."""

    capabilities = Capabilities(remote=True)
    store: Store

    def __init__(self, store: Store) -> None:
        self.bucket = store.bucket
        self.store = store
        self._named: tuple[Store, str] | None = None  # the object that the bucket's URL names, if a listing found it
        self._small: deque[ObjectInfo] = deque()  # objects whose bodies come next
        self._bodies: Bodies = None
        self._hidden: dict[str, list[str]] = {}  # names in hidden folders, by the prefix that was listed
        self._ahead: ReadAhead[ResumingStream] | None = None
        self._begun_alone: dict[ObjectInfo, ResumingStream] = {}
        self._on_file: OnFile | None = None

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List the inputs that match the templates, with sizes and versions, in as few requests as possible."""
        templates = templates_of(self, templates)
        if not templates and (only := self._single_object()):
            return [only]
        if self.store.aistore_templates:
            templates = [from_aistore(template) for template in templates]
        objects = self.find([name for template in templates for name in expand(template) if self._may_be_literal(name)])

        def listing(prefix: str) -> Iterator[str]:
            for item in self.listing(prefix):
                objects[item.name] = item
                yield item.name

        try:
            chosen = resolve(templates, listing, objects.__contains__, numbers=self.store.aistore_templates)
        except NothingFoundError as error:
            if templates or objects:
                raise error.at(shard=self.bucket) from None
            what = "there is no such object or folder" if self.store.root else "is empty"
            raise NothingFoundError(what, shard=self.bucket, hint="check the URL") from None
        if not self.store.lists_versions:
            objects |= self.find([name for name in chosen if objects[name].version is None])
        return [objects[name] for name in chosen]

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open a stream that resumes after failures; the first read raises any error."""
        if begun := self._begun_alone.pop(item, None):
            return begun
        if self._small and self._small[0] == item and self._bodies:
            self._small.popleft()
            body = next(self._bodies)
            if body and (data := whole_body(body, item)) is not None:
                return io.BytesIO(data)
        return (self._ahead and self._ahead.take(item)) or self._stream(item)

    def fetch_whole(self, name: str) -> tuple[ObjectInfo, bytes]:
        """Return an object's description and all its bytes, which `prefetch` may have requested already.

        Raises:
            NoSuchObject: when the object does not exist.
            SourceError: when it cannot be read.
        """
        item = ObjectInfo(name, None, None)
        stream = (self._ahead and self._ahead.take(item)) or self._stream(item)
        data = read_to_end(stream)
        return stream.item, data

    def _stream(self, item: ObjectInfo) -> ResumingStream:
        return open_object(self.store, item)

    def _fetch_each(self, items: Sequence[ObjectInfo]) -> Bodies:
        return self.store.fetch_each(items) if isinstance(self.store, BulkStore) else None

    def _begun(self, item: ObjectInfo) -> ResumingStream:
        stream = self._stream(item)
        stream.begin(fetch_threads())
        return stream

    @contextmanager
    def prefetch(self, items: Sequence[ObjectInfo], most: int = IN_FLIGHT) -> Iterator[None]:
        """Fetch the inputs that will be opened inside the `with` block, in this order and several at once."""
        items = [item for item in items if item not in self._begun_alone]
        small = [item for item in items if item.size is not None and item.size <= SMALL]
        self._bodies = self._fetch_each(small)
        self._small = deque(small if self._bodies else ())
        others = set(items) - set(self._small)
        self._ahead = ReadAhead((item for item in items if item in others), self._begun, most)
        try:
            yield
        finally:
            for stream in self._ahead.rest():
                stream.close()
            if self._bodies:
                self._bodies.close()
            self._small, self._bodies, self._ahead = deque(), None, None

    @contextmanager
    def while_listing(self, on_file: OnFile) -> Iterator[None]:
        """Call a function with each object as soon as a page of a listing has it."""
        self._on_file = on_file
        try:
            yield
        finally:
            self._on_file = None
            while self._begun_alone:
                self._begun_alone.popitem()[1].close()

    def begin(self, item: ObjectInfo) -> None:
        """Start fetching an object that will be opened soon."""
        if item not in self._begun_alone:
            self._begun_alone[item] = self._begun(item)

    def ranges(self) -> ObjectRanges:
        """Return a reader of ranges of the objects."""
        return ObjectRanges(self.store)

    def find(self, names: Sequence[str]) -> dict[str, ObjectInfo]:
        """Return the objects that exist under these names, in as few requests as possible."""
        if self.store.can_list and self.store.lists_versions and len(names) > _LIST_FROM:
            wanted = set(names)
            prefix = os.path.commonprefix(names)  # noqa: RUF071 - of names, not of paths
            return {item.name: item for item in self.listing(prefix) if item.name in wanted}
        return look_up_each(self.store, names)

    def listing_info(self) -> ListingInfo:
        """Return the commit of the bucket, if it has commits, and names of hidden objects."""
        commit = self.store.revision
        known = ListingInfo(hidden=self._hidden)
        if commit is None:
            return known
        return known._replace(identity={"revision": commit}, listed_by=(*known.listed_by, "input.revision"))

    def locate(self, name: str) -> str:
        """Return the object's URL."""
        return self.store.locate(name)

    def _may_be_literal(self, name: str) -> bool:
        """Whether a name must be looked up literally; a listing finds names whose wildcards are not brackets."""
        wild = is_glob(name) or (self.store.aistore_templates and is_numbered(name))
        return not wild or not self.store.can_list or "[" in name

    def _single_object(self) -> ObjectInfo | None:
        """Return the object that the bucket's URL itself names; None if it names a folder."""
        above = self._named or self.store.parent()
        if above is None:
            return None
        folder, name = above
        if item := look_up(folder, name):
            self.store, self._named = folder, above
        elif self._named:
            hint = "restore it and run the same command again"
            raise SourceError("was deleted after it had been listed", shard=folder.locate(name), hint=hint)
        elif not folder.can_list:
            hint = "check the URL, or name the shards in a folder with braces, such as 'train-{0000..0146}.tar'"
            raise SourceError("there is no such file", shard=folder.locate(name), hint=hint)
        return item

    def listing(self, prefix: str) -> Sequence[ObjectInfo]:
        """Return all objects whose names begin with a prefix."""
        found = retry(self.store, lambda: [*self._listed(prefix)], self.bucket)
        self._hidden[prefix] = [item.name for item in found if "/." in f"/{item.name}"]
        return found

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        began = time.monotonic()
        objects = iter(self.store.list(prefix))
        first = next(objects, None)
        note_round_trip(self.store, began)
        for item in chain(filter(None, [first]), objects):
            if self._on_file:
                self._on_file(item)
            yield item
