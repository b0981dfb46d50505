"""A folder with one folder of images per class; its inputs are chunks of the list of its files."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import stat
import zlib
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.errors import SampleError, SourceError, UsageError, changed, few, read_failed
from tar2tf_cli.formats import image
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.magic import GZIP_MAGIC
from tar2tf_cli.inputs.base import ListSource, divided, shuffled
from tar2tf_cli.samples.names import KEY, Sample
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.templates import resolve
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.base import Known, OnBytes, OnFault, Samples

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport


FORMS: Final = 'write JSON, {"CLASS": {"label": N, "human_labels": "TEXT"}}, or lines of CLASS or CLASS<TAB>TEXT'
"""How a label map is written."""

IMAGENET: Final = "imagenet"
"""Stands for the map of ImageNet-1k instead of a path; a file of this name is written `./imagenet`."""


class Label(NamedTuple):
    """The number and the text of a class."""

    number: int
    text: str = ""


Labels: TypeAlias = dict[str, Label]
"""Labels by class."""


@cache
def imagenet_labels() -> Labels:
    """Return the 1,000 classes of ImageNet-1k (ILSVRC 2012), numbered from 0 in the sorted order of their synsets.

    Texts are the words of the synsets in WordNet 3.0.
    """
    return parse_labels(resources.files(__package__).joinpath("imagenet.tsv").read_text("utf-8"))


def number_classes(names: Collection[str]) -> Labels:
    """Number classes from 0 in the sorted order of their names (by code point), without texts.

    If all are synsets of ImageNet-1k, even if only a few, they get its labels.
    """
    if names and imagenet_labels().keys() >= set(names):
        return imagenet_labels()
    return {name: Label(number) for number, name in enumerate(sorted(names))}


def load_labels(path: str | os.PathLike[str]) -> Labels:
    """Load the map in a file or, if the path is `imagenet`, that of ImageNet-1k.

    Raises:
        SourceError: when the file cannot be read.
        UsageError: when it is not a label map; names the line or class.
    """
    name = os.fspath(path)
    if name == IMAGENET:
        return imagenet_labels()
    try:
        with open(name, "rb") as file:
            data = file.read()
        text = (gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data).decode("utf-8-sig")
        return parse_labels(text)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "its gzip stream is damaged"
        raise SourceError(f"the label map cannot be read: {reason}", shard=name) from None
    except UnicodeDecodeError:
        raise UsageError("is not a label map: it is not UTF-8", shard=name) from None
    except ValueError as error:
        raise UsageError(str(error), shard=name, hint=FORMS) from None


def parse_labels(text: str) -> Labels:
    """Parse a map: JSON if it begins with a brace or a bracket, otherwise lines.

    Raises:
        ValueError: when it is invalid; says which line or class is wrong.
    """
    labels = _from_json(text) if text.lstrip().startswith(("{", "[")) else _from_lines(text)
    if not labels:
        raise ValueError("the label map has no classes")
    return labels


def _from_json(text: str) -> Labels:
    try:
        items = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"the label map is not JSON: line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("the label map is nested too deep") from None
    if not isinstance(items, dict):
        raise ValueError("the label map is a JSON list, not an object")
    return {name: _label(name, item) for name, item in items.items()}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the label map has {next(name for name in names if names.count(name) > 1)!r} twice")
    return whole


def _label(name: str, item: Any) -> Label:
    if not isinstance(item, dict) or "label" not in item:
        raise ValueError(f"the class {name!r} has no label in the label map")
    number, text = item["label"], item.get("human_labels", "")
    if type(number) is not int or not -(2**63) <= number < 2**63:
        raise ValueError(f"the label of the class {name!r} is {number!r}, not a whole number")
    if not isinstance(text, str):
        raise ValueError(f"human_labels of the class {name!r} is {text!r}, not text")
    return Label(number, text)


def _from_lines(text: str) -> Labels:
    labels: Labels = {}
    for position, line in enumerate(text.splitlines(), 1):
        name, _, words = line.partition("\t")
        name = name.strip()
        if not name:
            if words.strip():
                raise ValueError(f"line {position} of the label map has no class")
            continue
        if name in labels:
            raise ValueError(f"line {position} of the label map repeats {name!r}")
        labels[name] = Label(len(labels), words.strip())
    return labels


def to_bytes(labels: Labels) -> bytes:
    """Return the map as a JSON document, sorted by number, then by class; equal maps give equal bytes."""
    order = sorted(labels.items(), key=lambda item: (item[1].number, item[0]))
    whole = {name: {"label": label.number, "human_labels": label.text} for name, label in order}
    return json.dumps(whole, indent=1).encode("ascii") + b"\n"


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


def open_input(conversion: Conversion, endpoint: str | None) -> ImageFolderSource:
    """Return the source of the conversion's images."""
    spec = conversion.input
    return ImageFolderSource(
        spec.bucket,
        labels=spec.labels,
        seed=conversion.seed if conversion.shuffle else None,
        limit=conversion.limit,
        shards=conversion.output.num_shards,
    )


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
        self._classes: list[str] = []
        self._count: int | None = None
        self._labels_path = labels
        self._labels: Labels = {}
        self._seed = seed
        self._limit = limit
        self._shards = shards
        self._chunks: dict[str, str] = {}  # joined by NUL: a million names are large enough as one text a chunk

    def known(self) -> Known:
        """Return the classes and the number of files; the label map is written as `labels.json`."""
        labels = to_bytes(self._labels)
        return Known(
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
        try:
            names = resolve(templates, lambda prefix: files, files.__contains__) if templates else sorted(files)
        except SourceError as error:
            raise error.at(shard=self.bucket) from None
        if self._labels_path is None:
            self._check_classes(names)
            self._labels = number_classes({_class(name) for name in files})
        else:
            self._labels = self._labels_of(self._labels_path, names)
        self._classes = sorted({_class(name) for name in names})
        names = shuffled(names, self._seed, str)[: self._limit]
        self._count = len(names)
        inputs = list(divided("files", [files[name] for name in names], _described, self._shards))
        self._chunks = {item.name: "\0".join(file.name for file in chunk) for item, chunk in inputs}
        return [item for item, _ in inputs]

    def samples(self, item: ObjectInfo, report: InputReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield a sample for each file: bytes as `image`, class as `label`, `synset` and `text`, and `filename`."""
        total = 0
        for name in self._chunks[item.name].split("\0"):
            data = self._read(name)
            total += len(data)
            if on_bytes:
                on_bytes(len(data))
            sample = self._sample(name, data)
            if image.image_format(data) is None:
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

    def _labels_of(self, path: str, names: Sequence[str]) -> Labels:
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
