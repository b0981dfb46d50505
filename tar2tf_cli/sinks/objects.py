"""The sink of buckets: each finished file is uploaded, checked, then deleted from the local disk."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.store import NoSuchObject, ObjectExists, Store
from tar2tf_cli.errors import OutputExistsError, SinkError, SourceError, write_errors
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.streams import read_to_end
from tar2tf_cli.sinks.directory import Sink, size_change
from tar2tf_cli.spec.templates import hidden_name
from tar2tf_cli.stores.control import parsed
from tar2tf_cli.stores.objects import open_object, read_object, retry
from tar2tf_cli.stores.source import ObjectSource
from tar2tf_cli.stores.transfer import hasher

_UPLOADS: Final = 4
_CHUNK: Final = 1 << 20
_CLAIM: Final = "claim"
_SETTLING: Final = 0.25  # seconds that a run may take from seeing no claim to having put its own

T = TypeVar("T")


class _Claim:
    """The object by which a run tells others that it writes the output.

    Attributes:
        run: the run; empty before it is known.
        text: the content of the object; empty if the claim is another run's.
        settled: the time after which no run that saw no claim can replace this one; 0 once it was checked.
        alone: whether no other run can have staged parts.
    """

    def __init__(self, run: str = "", text: bytes = b"") -> None:
        self.run = run
        self.text = text
        self.settled = 0.0
        self.alone = True


class ObjectSink(Sink):
    """The sink of one bucket; up to four uploads run while more files are being made.

    A part whose final name is not yet known waits in the bucket, in a hidden folder named after the manifest, and is
    copied to that name later. The folder also holds the claim, an object that names the run that writes the output.

    Args:
        store: the bucket, with names relative to its top.
        url: the bucket's URL, such as `s3://bucket`.
    """

    renames = False

    def __init__(self, store: Store, url: str) -> None:
        self.store: Store = store
        self._url = url
        self._begins = self._output = ""
        self._staging = ".tar2tf/"
        self._claim = _Claim()
        self._folder = ""  # the local working folder
        self._listings: dict[str, dict[str, int | None]] = {}  # sizes by name, by prefix
        self._versions: dict[str, str | None] = {}  # versions of the objects that this run published
        self._pool = ThreadPoolExecutor(_UPLOADS, "tar2tf-upload")  # its threads start with the first upload
        self._uploads: deque[Future[None]] = deque()

    def inside(self, path: str) -> str:
        """Return the path without the bucket's URL."""
        return path.removeprefix(self._url).lstrip("/")

    def locate(self, path: str) -> str:
        """Return the URL."""
        return f"{self._url}/{path}"

    def prepare(self, manifest: str, begins: str = "") -> str:
        """Return this output's folder in the user's cache directory."""
        self._begins, self._output = begins, self.locate(manifest)
        head, name = os.path.split(manifest)
        self._staging = os.path.join(head, hidden_name(name, ".tar2tf/"))
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        url = self.locate(manifest)
        readable = re.sub(r"[^\w.-]+", "-", url.removesuffix(".json"))[-60:].strip("-")
        digest = blake2b(url.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
        self._folder = os.path.join(cache, "tar2tf", f"{readable}-{digest}")
        return self._folder

    def reserve(self, run: str, conversion: str, shards: str, *, replaces: bool) -> None:
        """Put the claim into the bucket, unless another run's claim is there."""
        name = self._staging + _CLAIM
        made = {"run": run, "conversion": conversion, "shards": shards}
        mine = {**made, "host": os.uname().nodename, "process": os.getpid()}
        self._claim, part = _Claim(run, json.dumps(mine).encode()), os.path.join(self._folder, _CLAIM)
        with write_errors(part), open(part, "wb") as file:
            file.write(self._claim.text)
        try:
            self._ask(lambda: self.store.put(name, part, absent=True), name)
        except _ExistsError:
            other = parsed(self._read_claim())
            same = other.get("run") == run or other.get("conversion") == conversion
            if not (same or replaces):
                raise self._taken(other) from None
            self._claim.alone = other.get("run") == run or not same
            self._ask(lambda: self.store.put(name, part), name)
        except SinkError as error:  # its message names the claim, which users do not know
            raise SinkError(error.message, shard=self._output, hint=error.hint) from None
        finally:
            os.unlink(part)
        self._claim.settled = time.monotonic() + (0 if self.store.exclusive else _SETTLING)

    def reserved_by(self) -> str:
        """Return the conversion of the claim."""
        return str(parsed(self._read_claim()).get("conversion", ""))

    def check_reserved(self) -> None:
        """Read the claim again, and check that it is this run's."""
        mine = self._claim.text
        if mine and (claim := self._read_claim()) != mine:
            other = parsed(claim)
            if other.get("conversion") != parsed(mine)["conversion"]:
                raise self._taken(other)

    def release(self) -> None:
        """Delete the claim, if it is still this run's."""
        if self._claim.text and self._read_claim() == self._claim.text:
            self.remove(self._staging + _CLAIM)
        self._claim.text = b""

    def _read_claim(self) -> bytes:
        """Return the content of the claim in the bucket, empty if there is none."""
        item = ObjectInfo(self._staging + _CLAIM, None, None)
        with _sink_errors(), contextlib.suppress(NoSuchObject):
            return read_to_end(open_object(self.store, item))
        return b""

    def _taken(self, other: Mapping[str, str]) -> OutputExistsError:
        who = f"process {other.get('process', '?')} on {other.get('host', '?')}"
        hint = "wait until it is done; if it was killed, pass --overwrite to take over its output"
        return OutputExistsError(f"another conversion is writing this output ({who})", shard=self._output, hint=hint)

    def walk(self, root: str, *, nested: bool) -> Iterator[tuple[str, bool]]:
        """Yield the names of the bucket's objects below a folder."""
        folder = "" if root == "." else f"{root.rstrip('/')}/"
        for name in self._listing(self._begins):
            relative = name[len(folder) :]
            if name.startswith(folder) and (nested or "/" not in relative) and not name.startswith(self._staging):
                yield relative, False

    def exists(self, path: str, *, now: bool = False) -> bool:
        """Whether the bucket has an object of that name."""
        return self._ask(lambda: self.store.head(path), path) is not None if now else self.size(path) is not None

    def size(self, path: str) -> int | None:
        """Return an object's size in bytes, from one listing of the output or of the staged parts."""
        listed = (prefix for prefix in (self._staging, self._begins) if path.startswith(prefix))
        return self._listing(next(listed, path)).get(path)

    def read(self, path: str) -> bytes | None:
        """Read the whole object."""
        with _sink_errors():
            return read_object(self.store, path)

    def publish(self, part: str, path: str, *, replaces: bool = True) -> None:
        """Upload a part, or copy a staged one, in a thread; wait while too many uploads are running."""
        if os.path.exists(part):
            self._submit(partial(self._upload, replaces=replaces), part, path)
        else:
            self._submit(partial(self._rename, replaces=replaces), part, path)

    def stage(self, part: str) -> None:
        """Upload as `publish` does."""
        self._submit(self._upload, part, self._staged(part))

    def part_size(self, part: str) -> int | None:
        """Return the size of the local file, else of the staged part, from one listing."""
        try:
            return os.stat(part).st_size
        except FileNotFoundError:
            return self.size(self._staged(part))

    def drop_staged(self) -> None:
        """Delete the staged parts of this run and of earlier runs, unless a concurrent equal run may need them."""
        for name in list(self._listing(self._staging)):
            if name.startswith(self._staged("")) or (self._claim.alone and name != self._staging + _CLAIM):
                self.remove(name)

    def changed(self, published: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, str]]:
        """Compare the objects in few requests; an object with another version is read."""
        with _sink_errors():
            there = ObjectSource(self.store).find([*published])
        for path, (size, crc) in published.items():
            item = there.get(path)
            if item is None or item.size != size:
                yield path, size_change(item and item.size, size)
            elif self._versions.get(path) not in (None, item.version) and self._digest(item, "crc32c") != f"{crc:08x}":
                yield path, "does not hold the bytes that were written"

    def remove(self, path: str) -> None:
        """Delete an object if it exists."""
        self._ask(lambda: self.store.remove(path), path)
        for listing in self._listings.values():
            listing.pop(path, None)

    def flush(self, folders: Iterable[str]) -> None:
        """Wait for every upload."""
        self._reap(0)

    def close(self) -> None:
        """Wait for running uploads; the next run does those that have not started."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._uploads.clear()

    def _staged(self, part: str) -> str:
        return f"{self._staging}{self._claim.run}/{os.path.basename(part)}"

    def _submit(self, action: Callable[[str, str], None], source: str, path: str) -> None:
        if self._claim.settled:
            time.sleep(max(0, self._claim.settled - time.monotonic()))
            self._claim.settled = 0.0
            self.check_reserved()
        self._reap(_UPLOADS - 1)
        self._uploads.append(self._pool.submit(action, source, path))

    def _reap(self, most: int) -> None:
        """Wait until at most `most` uploads are running."""
        while self._uploads and (len(self._uploads) > most or self._uploads[0].done()):
            self._uploads.popleft().result()

    def _upload(self, part: str, path: str, *, replaces: bool = True) -> None:
        size = os.stat(part).st_size
        try:
            self._ask(lambda: self.store.put(path, part, absent=not replaces), path)
        except _ExistsError:
            self._check_equal(part, path)
        uploaded = self._check_size(path, size, "uploaded")
        with _sink_errors():
            self._check_sum(part, path, uploaded)
        for prefix, listing in list(self._listings.items()):
            if path.startswith(prefix):
                listing[path] = size
        os.unlink(part)

    def _rename(self, part: str, path: str, *, replaces: bool = True) -> None:
        """Copy a staged part to its final name, check the copy, and delete the staged object."""
        name, size = self._staged(part), self.part_size(part)
        if not replaces and self.exists(path, now=True):
            self._check_equal(part, path)
        else:
            self._ask(lambda: self.store.copy(name, path), path)
        self._check_size(path, size or 0, "copied")
        self._ask(lambda: self.store.remove(name), name)

    def _check_size(self, path: str, size: int, how: str) -> ObjectInfo:
        """Check that an object has as many bytes as were sent; delete it otherwise."""
        held = self._ask(lambda: self.store.head(path), path)
        if held is None or held.size != size:
            there = f"{held.size:,} bytes" if held and held.size is not None else "nothing"
            self._discard(path)
            raise SinkError(f"{size:,} bytes were {how}, but {there} arrived", shard=self.locate(path))
        self._versions[path] = held.version
        return held

    def _check_sum(self, part: str, path: str, there: ObjectInfo) -> None:
        """Check the object's checksum, if the bucket has one, against the bytes sent."""
        kind, value = there.checksum or ("", "")
        if hasher(kind) and self._digest(part, kind) != value.lower():
            self._discard(path)
            raise SinkError(f"the {kind} of the object differs from that of the bytes sent", shard=self.locate(path))

    def _check_equal(self, part: str, path: str) -> None:
        """Check that an existing object has the bytes of a part, as after a repeated request, or from an equal run.

        Raises:
            OutputExistsError: when the bytes differ.
        """
        item, size = self._ask(lambda: self.store.head(path), path), self.part_size(part)
        mine = part if os.path.exists(part) else ObjectInfo(self._staged(part), size, None)
        if item is None or item.size != size or not self._are_equal(mine, item):
            message = "does not hold the bytes of this conversion: another program wrote it"
            raise OutputExistsError(message, shard=self.locate(path), replaceable=True)

    def _are_equal(self, mine: str | ObjectInfo, item: ObjectInfo) -> bool:
        """Whether a part has an object's bytes, which need not be read if the bucket knows their checksum."""
        kind, value = item.checksum or (self.store.version_is, item.version or "")
        if hasher(kind) and value.isalnum() and self._digest(mine, kind) == value.lower():  # no MD5 has a `-`
            return True
        return self._digest(mine, "md5") == self._digest(item, "md5")

    def _digest(self, file: str | ObjectInfo, kind: str) -> str:
        """Return a checksum of the bytes of a local file or of an object."""
        made = hasher(kind)
        assert made
        with _sink_errors(), contextlib.ExitStack() as stack:
            stream: ByteStream
            if isinstance(file, str):
                stream = stack.enter_context(open(file, "rb", buffering=0))
            else:
                stream = stack.enter_context(contextlib.closing(open_object(self.store, file)))
            while data := stream.read(_CHUNK):
                made.update(data)
        return made.hexdigest()

    def _discard(self, path: str) -> None:
        """Try to delete an object; errors are ignored, as its upload has already failed."""
        with contextlib.suppress(SinkError):
            self._ask(lambda: self.store.remove(path), path)

    def _listing(self, prefix: str) -> dict[str, int | None]:
        """Return the sizes of objects with a prefix, as first listed."""
        if prefix not in self._listings:
            items = self._ask(lambda: [*self.store.list(prefix)], prefix)
            self._listings[prefix] = {item.name: item.size for item in items}
        return self._listings[prefix]

    def _ask(self, request: Callable[[], T], path: str) -> T:
        """Return the store's response, with retries."""
        with _sink_errors():
            return retry(self.store, request, self.locate(path))


class _ExistsError(SinkError):
    """An object exists under a name that must be free."""


@contextlib.contextmanager
def _sink_errors() -> Iterator[None]:
    """Convert a store's errors to a sink's."""
    try:
        yield
    except ObjectExists as error:
        raise _ExistsError(error.message, shard=error.shard) from None
    except SourceError as error:
        raise SinkError(error.message, shard=error.shard, offset=error.offset, hint=error.hint) from None
    except OSError as error:
        raise SinkError(f"cannot be read: {error.strerror or error}", shard=error.filename) from None
