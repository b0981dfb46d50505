"""A folder with one folder of images per class; its inputs are chunks of the list of its files."""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import ListingInfo, OnBytes, OnFault, Samples
from tar2tf_cli.api.values import KEY, Sample, SourceReport
from tar2tf_cli.errors import SampleError, SourceError, UsageError, changed, few, read_failed
from tar2tf_cli.features.labels import FORMS, Labels, imagenet_labels, load_labels, number_classes, to_bytes
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.image import headers
from tar2tf_cli.formats.streams import IMAGE_SUFFIXES, LFS_POINTER, LFS_PULL
from tar2tf_cli.inputs.base import ListSource, divided, shuffled
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.templates import resolve
from tar2tf_cli.structs import NamedTuple

SPLITS: Final = frozenset(["train", "training", "val", "valid", "validation", "test", "testing", "eval"])
"""Names of folders that hold the classes of a split, in either case; a class never has such a name."""

_SYNSET: Final = r"n\d{8}"

_DANGLING: Final = "is a link to a file that does not exist"


class _ImageFile(NamedTuple):
    name: str  # from the folder, with slashes
    size: int
    mtime: int  # nanoseconds


def open_input(conversion: Conversion, endpoint: str | None) -> ImageFolderSource:
    """Return the source of the conversion's images."""
    spec = conversion.input
    return ImageFolderSource(
        spec.bucket,
        labels=spec.labels,
        seed=conversion.seed if conversion.shuffle else None,
        limit=conversion.limit,
        shards=conversion.output.shards_in(""),
        by_split=conversion.inputs_have_splits,
    )


class ImageFolderSource(ListSource):
    """A folder whose subfolders are classes and hold images, also in nested folders; links are followed.

    Args:
        bucket: the folder.
        labels: path of a label map, or `imagenet`; without one, classes are numbered in sorted order or,
            if all are synsets of ImageNet-1k, have its labels.
        seed: shuffle the files with this random seed.
        limit: the maximum number of files, counted from the first.
        shards: number of shards of equal count to make; no record must be copied if inputs end where shards end.
        by_split: whether the folders are splits, such as train and val, which have a folder for each class. Inputs are
            then named `SPLIT/files 1-128`.

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
        by_split: bool = False,
    ) -> None:
        if not os.path.isdir(bucket):
            hint = "image folders are read from a local disk" if "://" in bucket else None
            raise SourceError(
                "is not a folder" if os.path.exists(bucket) else "no such directory", shard=bucket, hint=hint
            )
        super().__init__(bucket)
        self._classes: list[str] = []
        self._count: int | None = None
        self._labels_path = labels
        self._labels: Labels = {}
        self._seed = seed
        self._limit = limit
        self._shards = shards
        self._splits: Sequence[str] = ()
        self._by_split = by_split
        self._chunks: dict[str, str] = {}  # names joined by NUL, as a million separate strings would need much memory

    def listing_info(self) -> ListingInfo:
        """Return the classes and the number of files; the label map is written as `labels.json`."""
        labels = to_bytes(self._labels)
        return ListingInfo(
            self._count,
            self.skipped,
            self._classes,
            documents={"labels.json": labels},
            identity={"digest": blake2b(labels, digest_size=16).hexdigest()},
        )

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
        if self._by_split:
            files = self._in_splits(files)
        try:
            names = resolve(templates, lambda prefix: files, files.__contains__) if templates else sorted(files)
        except SourceError as error:
            raise error.at(shard=self.bucket) from None
        if self._labels_path is None:
            self._check_classes(names)
            self._check_synsets(names)
            classes = {self._class(name) for name in names}
            named = classes <= imagenet_labels().keys()  # other folders are ignored
            self._labels = number_classes(classes if named else {self._class(name) for name in files})
        else:
            self._labels = self._labels_of(self._labels_path, names)
        self._classes = sorted({self._class(name) for name in names})
        names = shuffled(names, self._seed, str)[: self._limit]
        self._count = len(names)
        inputs: list[tuple[ObjectInfo, list[_ImageFile]]] = []
        for split in self._splits or ("",):
            noun = f"{split}/files" if split else "files"
            chosen = [files[name] for name in names if not split or _folder(name) == split]
            inputs += divided(noun, chosen, _described, self._shards)
        self._chunks = {item.name: "\0".join(file.name for file in chunk) for item, chunk in inputs}
        return [item for item, _ in inputs]

    def _in_splits(self, files: Mapping[str, _ImageFile]) -> dict[str, _ImageFile]:
        """Return the files that are in a class folder of a split folder.

        Raises:
            UsageError: when a folder is not named like a split, or has no folders of images.
        """
        self._splits = sorted({_folder(name) for name in files})
        inside = {name: file for name, file in files.items() if name.count("/") > 1}
        if outside := len(files) - len(inside):
            self.skipped["not in a class folder"] += outside
        for split in self._splits:
            if split.lower() not in SPLITS:
                hint = "leave out <split>, divide the images with --split train=0.9,val=0.1, or rename the folder"
                message = f"has the folder {split!r}, which is not named like a split, but the output path has <split>"
                raise UsageError(message, shard=self.bucket, hint=hint)
            if not any(_folder(name) == split for name in inside):
                hint = "there must be one folder for each class"
                raise UsageError(f"has no folders of images in {split!r}", shard=self.bucket, hint=hint)
        return inside

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield a sample for each file: bytes as `image`; class as `label`, `synset`, `text`; and `filename`."""
        total = 0
        for name in self._chunks[item.name].split("\0"):
            data = self._read(name)
            total += len(data)
            if on_bytes:
                on_bytes(len(data))
            sample = self._sample(name, data)
            if headers.image_format(data) is None:
                missing = not data and not os.path.exists(os.path.join(self.bucket, name))
                message = _DANGLING if missing else f"its content is not an image: {_beginning(data)}"
                fault(SampleError(message, key=sample[KEY], member=name))
            else:
                yield {"member": name}, sample
        if total != item.size:
            raise changed(self.bucket)

    def _check_classes(self, names: Sequence[str]) -> None:
        """Refuse a folder one level too high, whose subfolders are not classes."""
        classes = {self._class(name) for name in names}
        if splits := sorted(name for name in classes if name.lower() in SPLITS):
            what = f"has the folder {splits[0]!r}, which is named like a split, not like a class"
            below, others = splits[0], "; or convert all splits: -o 'out/<split>-<>.record'"
        elif classes and all(name.count("/") > 1 + bool(self._splits) for name in names):
            below, others = min(classes), ""
            what = f"its folders contain only folders: {below!r} would be a class without images of its own"
        else:
            return
        command = f"tar2tf convert --from imagefolder {shlex.quote(os.path.join(self.bucket, below))} ..."
        hint = f"convert the folder that has the classes: {command}{others}"
        raise UsageError(what, shard=self.bucket, hint=hint)

    def _check_synsets(self, names: Sequence[str]) -> None:
        """Refuse a stray folder among ImageNet's synsets, which would shift the class numbers."""
        classes = {self._class(name) for name in names}
        stray = sorted(name for name in classes if not re.fullmatch(_SYNSET, name))
        if stray and not classes.isdisjoint(imagenet_labels()):
            known = min(classes & imagenet_labels().keys())
            message = f"has {few(stray)} next to folders of ImageNet's synsets, such as {known}"
            hint = "leave it out with a template such as 'n*/*', or give a label map of all folders with --labels FILE"
            raise UsageError(message, shard=self.bucket, hint=hint)

    def _class(self, name: str) -> str:
        return name.split("/", 2)[1] if self._splits else _folder(name)

    def _sample(self, name: str, data: bytes) -> Sample:
        synset = self._class(name)
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

    def _labels_of(self, path: str, names: Sequence[str]) -> Labels:
        """Load a label map, which must contain the classes of the given files."""
        labels = load_labels(path)
        unknown = sorted({self._class(name) for name in names} - labels.keys())
        if unknown:
            self._check_classes([name for name in names if self._class(name) in unknown])
            some = "add them, or name the folders to convert with a template such as 'n01*/*'"
            hint = FORMS if labels.keys().isdisjoint(map(self._class, names)) else some
            message = f"the label map does not have {few(unknown)}, which are folders of {self.bucket}"
            raise UsageError(message, shard=path, hint=hint)
        return labels

    def _walk(self, path: str, relative: str, above: tuple[tuple[int, int], ...]) -> Iterator[_ImageFile]:
        """Yield the images in a folder and its subfolders, ignoring links to a folder that contains the link."""
        try:
            status = os.stat(path)
            here = (status.st_dev, status.st_ino)
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(f"cannot be listed: {error.strerror}", shard=path) from None
        if here in above:
            return
        for entry in entries:
            if entry.name.startswith("."):
                self.skipped["hidden"] += 1
            elif _is_folder(entry):
                yield from self._walk(entry.path, f"{relative}{entry.name}/", (*above, here))
            else:
                yield from self._candidate(entry, relative)

    def _candidate(self, entry: os.DirEntry[str], relative: str) -> Iterator[_ImageFile]:
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
                yield _ImageFile(relative + entry.name, 0, 0)
                return
            if stat.S_ISREG(status.st_mode):
                yield _ImageFile(relative + entry.name, status.st_size, status.st_mtime_ns)
            else:
                self.skipped["pipe or device"] += 1


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _is_dangling(path: str, error: OSError) -> bool:
    """Whether a file cannot be read because it is a link to a missing file, or to itself."""
    return error.errno in (errno.ENOENT, errno.ELOOP) and os.path.islink(path)


def _folder(name: str) -> str:
    return name.partition("/")[0]


def _beginning(data: bytes) -> str:
    if data.startswith(LFS_POINTER):
        return f"it is a Git LFS pointer; {LFS_PULL}"
    return f"it begins with {data[:6].hex(' ')}" if data else "it is empty"


def _described(file: _ImageFile) -> tuple[int, bytes]:
    return file.size, f"{file.name}\0{file.size}\0{file.mtime}\0".encode("utf-8", "surrogateescape")
