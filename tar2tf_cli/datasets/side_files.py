"""Files next to the shards that describe a conversion's output for other readers: a card, a schema, or an index.

| reader | file | specified by |
|---|---|---|
| Hugging Face datasets | `README.md`, a dataset card | https://huggingface.co/docs/hub/datasets-manual-configuration |
| TFX, Ray | `_train-schema.pbtxt`, a `tensorflow.metadata.v0.Schema` | schema.proto of tensorflow/metadata |
| wids | `_train-wids.json`, a `wids-shard-index-v1` | wids/wids_index.py of webdataset |
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tar2tf_cli.api.values import FeatureDescription
from tar2tf_cli.datasets.adjacent_files import AdjacentFiles
from tar2tf_cli.datasets.shards import read_manifests
from tar2tf_cli.errors import SourceError, UsageError, alternatives, read_failed
from tar2tf_cli.features.described import is_optional, is_shape_of_array
from tar2tf_cli.inputs.manifest import Document, Manifest, ShardEntry
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.spec.templates import PathTemplate, glob_regex
from tar2tf_cli.spec.urls import is_remote

CARD: Final = "README.md"
_FRONT_MATTER: Final = re.compile(r"---\r?\n(.*?)^---\r?\n", re.DOTALL | re.MULTILINE)
_SPLIT: Final = re.compile(r"\w+(\.\w+)*")
_TYPES: Final = {"bytes": "BYTES", "raw": "BYTES", "int64": "INT", "float": "FLOAT"}
_TARS: Final = {"hf": (".tar", ".tar.gz", ".tgz"), "wids": (".tar",)}
_OTHER: Final = "exists, and describes something else"


def check_output(output: Output, reader: str) -> None:
    """Check, before a conversion, that its output can be described for a reader: `hf`, `ray` or `wids`.

    Raises:
        UsageError: when it cannot be described.
    """
    if output.is_stream or is_remote(output.path):
        raise UsageError(f"--for {reader} describes shards in a folder", hint="name one, such as -o 'out/train-<>.tar'")
    if reader != "ray" and not output.path.lower().endswith(_TARS[reader]):
        raise UsageError(f"--for {reader}: it reads files that end in {alternatives(_TARS[reader])}", shard=output.path)


def export_card(manifest: str | os.PathLike[str]) -> list[str]:
    """Write a `README.md` that makes `datasets.load_dataset(FOLDER)` read exactly the tars of a manifest.

    It lists the files of each split; without splits, all files are in the split train. The text of an existing card,
    and everything else in its front matter, are kept.

    Args:
        manifest: the manifest's path, or a folder with one manifest.

    Returns:
        The path of the card.

    Raises:
        SourceError: when there is no manifest, or the existing card cannot be read.
        UsageError: when the shards are not tars, or a split has a name that Hugging Face datasets refuses.
    """
    document, folder = one_document(manifest)
    shards = document.manifest.shards
    _check_suffixes(shards, "hf", "Hugging Face datasets reads files that end in .tar", folder)
    by_split = {split or "train": some for split, some in _by_split(shards).items()}
    for name in by_split:
        if not _SPLIT.fullmatch(name):
            raise UsageError(f"Hugging Face datasets refuses the name of the split {name!r}: use letters, digits and _")
    files = [
        {"split": split, "path": _pattern(document.manifest, split, [shard.path for shard in some], folder)}
        for split, some in by_split.items()
    ]
    path = os.path.join(folder, CARD)
    AdjacentFiles().write({path: _card(path, files)}, _OTHER, overwrite=True)
    return [path]


def export_schema(manifest: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
    """Write a manifest's features as a TensorFlow Metadata `Schema` in text format.

    TFX and TFDV read it, and so does `ray.data.read_tfrecords(tf_schema=)`, which then returns lists of any length. A
    feature that every example has in one shape gets that shape; any other is a list of any length.

    Args:
        manifest: the manifest's path, or a folder with one manifest.
        overwrite: whether another file of that name may be replaced.

    Returns:
        The path of the schema.

    Raises:
        OutputExistsError: when the file exists with other content, unless `overwrite`.
        SourceError: when there is no manifest.
        UsageError: when the shards do not contain examples.
    """
    document, folder = one_document(manifest)
    document.check_records()
    features, records = document.manifest.features, document.manifest.records
    if not features:
        raise UsageError("describes no features, as its shards hold no examples", shard=document.path)
    text = "".join(_feature(name, about, features, records) for name, about in features.items())
    path = _beside(document, folder, "schema.pbtxt")
    AdjacentFiles().write({path: text.encode()}, _OTHER, overwrite=overwrite)
    return [path]


def _check_suffixes(shards: Sequence[ShardEntry], reader: str, rule: str, folder: str) -> None:
    """Refuse shards with names by which a reader does not know them as tars that it reads."""
    if other := next((shard.path for shard in shards if not shard.path.lower().endswith(_TARS[reader])), None):
        raise UsageError(f"{rule}, not {other}", shard=folder, hint="convert to 'X-<>.tar'")


def export_wids(manifest: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
    """Write, for each split, the index with which `wids.ShardListDataset` finds any sample of a manifest's tars.

    Args:
        manifest: the manifest's path, or a folder with one manifest.
        overwrite: whether another file of that name may be replaced.

    Returns:
        The path of each index.

    Raises:
        OutputExistsError: when the file exists with other content, unless `overwrite`.
        SourceError: when there is no manifest.
        UsageError: when the shards are not tars that wids can read.
    """
    document, folder = one_document(manifest)
    shards = document.manifest.shards
    _check_suffixes(shards, "wids", "wids reads uncompressed tars", folder)
    files = {}
    for split, some in _by_split(shards).items():
        path = _beside(document, folder, f"wids-{split}.json" if split else "wids.json")
        listed = [{"url": shard.path, "nsamples": shard.records, "filesize": shard.bytes} for shard in some]
        index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": listed}
        files[path] = json.dumps(index, indent=2).encode() + b"\n"
    AdjacentFiles().write(files, _OTHER, overwrite=overwrite)
    return [*files]


def one_document(manifest: str | os.PathLike[str]) -> tuple[Document, str]:
    """Read the single manifest that a path names, and return its folder too."""
    given = os.fspath(manifest)
    if is_remote(given):
        raise UsageError("is in a bucket, but the files can only be written to a folder on this machine", shard=given)
    document, *others = read_manifests([given])
    if others:
        raise UsageError("has several manifests", shard=given, hint="name one of them")
    return document, os.path.dirname(document.path)


def _by_split(shards: Sequence[ShardEntry]) -> dict[str, list[ShardEntry]]:
    """Return the shards of each split; without splits, under an empty name."""
    found: dict[str, list[ShardEntry]] = {}
    for shard in shards:
        found.setdefault(shard.split or "", []).append(shard)
    return found


def _beside(document: Document, folder: str, name: str) -> str:
    """Return the path of a side file, whose name begins like the manifest's."""
    base = os.path.basename(document.path).removesuffix(".json").removesuffix("manifest")
    return os.path.join(folder, f"{'' if base.startswith('_') else '_'}{base}{name}")


# --- The card ---


def _pattern(manifest: Manifest, split: str, paths: Sequence[str], folder: str) -> str | list[str]:
    """Return a glob for the shards of a split or, if it would match other files too, their paths."""
    output = manifest.spec["output"]
    assert isinstance(output, Mapping)
    template = PathTemplate.parse(str(output["path"]), numbered=len(paths) > 1)
    fields = {"split": split, "input": "*"}
    pattern = re.sub(r"<([^<>/]*)>", lambda field: fields.get(field[1], "*"), template.text)
    found = {path for path in _files(folder) if glob_regex(pattern).match(path)}
    return pattern if found == {*paths} and len(paths) > 1 else paths[0] if len(paths) == 1 else [*paths]


def _files(folder: str) -> Iterator[str]:
    """Yield the paths of all files in a folder and its subfolders, relative to it."""
    for path, _, names in os.walk(folder or "."):
        for name in names:
            yield os.path.relpath(os.path.join(path, name), folder or ".")


def _card(path: str, files: Sequence[Mapping[str, object]]) -> bytes:
    """Return a dataset card whose default configuration lists the given files."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        failed = read_failed(path, error) if isinstance(error, OSError) else SourceError("is not UTF-8", shard=path)
        raise failed from None
    match = _FRONT_MATTER.match(text)
    yaml = YAML()
    yaml.width = 120
    try:
        about = (yaml.load(match[1]) if match else None) or {}
        others = [one for one in about.get("configs", ()) if one.get("config_name", "default") != "default"]
    except (YAMLError, AttributeError, TypeError):
        raise SourceError("has a front matter that is not YAML of a dataset card", shard=path) from None
    about["configs"] = [{"config_name": "default", "data_files": [*map(dict, files)]}, *others]
    written = io.StringIO()
    yaml.dump(about, written)
    return f"---\n{written.getvalue()}---\n{text[match.end() :] if match else text}".encode()


# --- The schema ---


def _feature(name: str, about: FeatureDescription, features: Mapping[str, FeatureDescription], records: int) -> str:
    """Return the schema text of one feature."""
    lines = [f"name: {json.dumps(name, ensure_ascii=False)}", f"type: {_TYPES[about['encoding']]}"]
    shape = [] if about["encoding"] == "raw" else about["shape"]
    if is_shape_of_array(name, features):
        shape = [len(features[name.removesuffix("/shape")]["shape"])]
    if is_optional(about, records):
        lines += ["presence { min_count: 0 }", "value_count { min: 0 }"]
    elif None in shape:
        lines += ["presence { min_fraction: 1 min_count: 1 }", "value_count { min: 0 }"]
    else:
        sizes = "".join(f" dim {{ size: {size} }}" for size in shape)
        lines += ["presence { min_fraction: 1 min_count: 1 }", f"shape {{{sizes} }}"]
    return "feature {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
