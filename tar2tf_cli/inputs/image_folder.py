"""A folder with one folder of images per class; its inputs are chunks of the list of its files."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tar2tf_cli.errors import SampleError, SourceError, UsageError, changed, few, read_failed
from tar2tf_cli.formats import image
from tar2tf_cli.formats.blake2 import blake2b
from tar2tf_cli.inputs.base import ListSource, divided, shuffled
from tar2tf_cli.inputs.labels import FORMS, Labels, load_labels, number_classes, to_bytes
from tar2tf_cli.samples.names import KEY, Sample
from tar2tf_cli.spec.templates import resolve
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.base import OnBytes, OnFault, Placed

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport

__all__ = ["IMAGE_SUFFIXES", "ImageFolderSource"]

IMAGE_SUFFIXES: Final = frozenset(
    ["bmp", "gif", "jfif", "jpe", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp"]
)
"""Suffixes of image files, in either case; the content decides whether a file is an image."""


SPLITS: Final = frozenset(["train", "training", "val", "valid", "validation", "test", "testing", "eval"])
"""Names of folders that hold the classes of a split, in either case; a class never has such a name."""

_DANGLING: Final = "is a link to a file that is not there"


class _File(NamedTuple):
    name: str  # from the folder, with slashes
    size: int
    mtime: int  # nanoseconds


class ImageFolderSource(ListSource):
    """A folder whose folders are classes, with images in them or in folders below; links are followed.

    Args:
        bucket: the folder.
        labels: path of a label map, or `imagenet`; without one, classes are numbered in sorted order or,
            if all are synsets of ImageNet-1k, have its labels.
        seed: shuffle the files with this random seed.
        limit: the most files to take, from the first on.
        shards: number of shards of equal count to make; no record has to be copied if inputs end where shards end.

    Raises:
        SourceError: when the folder does not exist.
    """

    def __init__(
        self,
        bucket: str,
        *,
        labels: str | None = None,
        seed: int | None = None,
        limit: int | None = None,
        shards: int | None = None,
    ) -> None:
        if not os.path.isdir(bucket):
            hint = "image folders are read from a local disk" if "://" in bucket else None
            raise SourceError(
                "is not a folder" if os.path.exists(bucket) else "no such directory", shard=bucket, hint=hint
            )
        super().__init__(bucket)
        self.classes: list[str] = []
        self._labels_path = labels
        self._labels: Labels = {}
        self._seed = seed
        self._limit = limit
        self._shards = shards
        self._chunks: dict[str, str] = {}  # joined by NUL: a million names are large enough as one text a chunk

    @property
    def documents(self) -> dict[str, bytes | None]:
        """The file to write beside the manifest: the label map, as `labels.json`."""
        return {"labels.json": to_bytes(self._labels)}

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies a conversion besides its spec and files: the labels."""
        return {"digest": blake2b(to_bytes(self._labels), digest_size=16).hexdigest()}

    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """List chunks of the files that match templates, or of all files; versions are hashes of sizes and times.

        Raises:
            SourceError: when the folder has no folders of images, or cannot be read.
            UsageError: when a folder is not in the label map, or folders are splits rather than classes.
        """
        files = {file.name: file for file in self._walk(self.bucket, "", ())}
        if not files:
            hint = "there must be one folder for each class"
            raise SourceError("has no folders of images", shard=self.bucket, hint=hint)
        try:
            names = resolve(templates, lambda prefix: files, files.__contains__) if templates else sorted(files)
        except SourceError as error:
            raise error.at(shard=self.bucket) from None
        if self._labels_path is None:
            self._check_classes(names)
            self._labels = number_classes({_class(name) for name in files})
        else:
            self._labels = self._known(self._labels_path, names)
        self.classes = sorted({_class(name) for name in names})
        names = shuffled(names, self._seed, str)[: self._limit]
        self.count = len(names)
        inputs = list(divided("files", [files[name] for name in names], _described, self._shards))
        self._chunks = {item.name: "\0".join(file.name for file in chunk) for item, chunk in inputs}
        return [item for item, _ in inputs]

    def samples(self, item: ObjectInfo, report: InputReport, fault: OnFault, on_bytes: OnBytes = None) -> Placed:
        """Yield a sample for each file: bytes as `image`, class as `label`, `synset` and `text`, and `filename`."""
        total = 0
        for name in self._chunks[item.name].split("\0"):
            data = self._read(name)
            total += len(data)
            if on_bytes:
                on_bytes(len(data))
            sample = self._sample(name, data)
            if image.sniff(data) is None:
                missing = not data and not os.path.exists(os.path.join(self.bucket, name))
                message = _DANGLING if missing else f"its content is not an image: {_beginning(data)}"
                fault(SampleError(message, key=sample[KEY], member=name))
            else:
                yield {"member": name}, sample
        if total != item.size:
            raise changed(self.bucket)

    def _check_classes(self, names: Sequence[str]) -> None:
        """Refuse a folder that is one level too high: its folders would become the classes."""
        classes = {_class(name) for name in names}
        if splits := sorted(name for name in classes if name.lower() in SPLITS):
            what = f"has the folder {splits[0]!r}, which is named like a split, not like a class"
            below = splits[0]
        elif classes and all(name.count("/") > 1 for name in names):
            below = min(classes)
            what = f"its folders contain only folders: {below!r} would be a class without images of its own"
        else:
            return
        command = f"tar2tf convert --from imagefolder {shlex.quote(os.path.join(self.bucket, below))} ..."
        raise UsageError(what, shard=self.bucket, hint=f"convert the folder that has the classes: {command}")

    def _sample(self, name: str, data: bytes) -> Sample:
        synset = _class(name)
        label = self._labels[synset]
        return {
            KEY: name.rpartition(".")[0],
            "image": data,
            "label": label.number,
            "synset": synset,
            "text": label.text,
            "filename": name.rpartition("/")[2],
        }

    def _read(self, name: str) -> bytes:
        path = os.path.join(self.bucket, name)
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except OSError as error:
            if _is_dangling(path, error):
                return b""
            raise read_failed(path, error) from None

    def _known(self, path: str, names: Sequence[str]) -> Labels:
        """Load a label map, which must have the classes of these files."""
        labels = load_labels(path)
        unknown = sorted({_class(name) for name in names} - labels.keys())
        if unknown:
            self._check_classes([name for name in names if _class(name) in unknown])
            some = "add them, or name the folders to convert with a template such as 'n01*/*'"
            hint = FORMS if labels.keys().isdisjoint(map(_class, names)) else some
            message = f"the label map does not have {few(unknown)}, which are folders of {self.bucket}"
            raise UsageError(message, shard=path, hint=hint)
        return labels

    def _walk(self, path: str, relative: str, above: tuple[tuple[int, int], ...]) -> Iterator[_File]:
        """Yield the images below a folder; a link to a folder that contains it is not followed."""
        try:
            status = os.stat(path)
            here = (status.st_dev, status.st_ino)
            with os.scandir(path) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(f"cannot be listed: {error.strerror}", shard=path) from None
        if here in above:
            return
        for entry in entries:
            if entry.name.startswith("."):
                self.skipped["hidden"] += 1
            elif entry.is_dir():
                yield from self._walk(entry.path, f"{relative}{entry.name}/", (*above, here))
            else:
                yield from self._candidate(entry, relative)

    def _candidate(self, entry: os.DirEntry[str], relative: str) -> Iterator[_File]:
        suffix = entry.name.rpartition(".")[2].lower()
        if suffix not in IMAGE_SUFFIXES:
            self.skipped["no image suffix"] += 1
        elif not relative:
            self.skipped["not in a class folder"] += 1
        else:
            try:
                status = entry.stat()
            except OSError as error:
                if not _is_dangling(entry.path, error):
                    raise read_failed(entry.path, error) from None
                yield _File(relative + entry.name, 0, 0)
                return
            if stat.S_ISREG(status.st_mode):
                yield _File(relative + entry.name, status.st_size, status.st_mtime_ns)
            else:
                self.skipped["pipe or device"] += 1


def _is_dangling(path: str, error: OSError) -> bool:
    """Whether a file cannot be read as it is a link to one that is not there."""
    return isinstance(error, FileNotFoundError) and os.path.islink(path)


def _class(name: str) -> str:
    return name.partition("/")[0]


def _beginning(data: bytes) -> str:
    return f"it begins with {data[:6].hex(' ')}" if data else "it is empty"


def _described(file: _File) -> tuple[int, bytes]:
    return file.size, f"{file.name}\0{file.size}\0{file.mtime}\0".encode("utf-8", "surrogateescape")
