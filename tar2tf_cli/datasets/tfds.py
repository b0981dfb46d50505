"""Describe the output of a conversion for TensorFlow Datasets, without another conversion and without TensorFlow.

`dataset_info.json` and `features.json` are those that `tfds.builder_from_directory` reads; their fields are those of
`dataset_info.proto` and `feature.proto` in tensorflow_datasets/core/proto.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tar2tf_cli.datasets.adjacent_files import AdjacentFiles
from tar2tf_cli.datasets.indexes import Indexes
from tar2tf_cli.datasets.process_resources import ProcessResources
from tar2tf_cli.datasets.records import Records
from tar2tf_cli.datasets.shards import find_shards
from tar2tf_cli.datasets.side_files import one_document
from tar2tf_cli.errors import ImageError, UsageError
from tar2tf_cli.features.described import is_optional
from tar2tf_cli.features.labels import LabelMap
from tar2tf_cli.formats.image.headers import header
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.inputs.tfds_folder import INFO, RIGHT_NAMES, splits_of_shards, to_json, why_no_tfds
from tar2tf_cli.spec.conversion import Output
from tar2tf_cli.spec.urls import is_remote

_FEATURES: Final = "tensorflow_datasets.core.features."
_LABELS: Final = ("image/class/label", "label", "cls")
"""Features that hold the number of a class, in order of precedence."""

_GZIP: Final = "TensorFlow Datasets cannot read gzip shards"
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


def export_tfds(
    manifest: str | os.PathLike[str],
    name: str | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    supervised: Sequence[str] = (),
    description: str = "",
    citation: str = "",
    overwrite: bool = False,
) -> list[str]:
    """Write the files next to a manifest that let `tfds.builder_from_directory` read its shards.

    Encoded images become `Image`, numbers of classes with a label map `ClassLabel`, text and other bytes `Text`,
    numbers and arrays `Scalar` and `Tensor`. All records are read, because one text among images makes a feature
    `Text`; so does an image that `Image` could not decode, or only without its transparency. A feature that some
    examples lack becomes a list, which may be empty. Without splits, all shards are in the split train. If the
    conversion kept the description of its inputs, only name and version are changed.

    Args:
        manifest: the manifest's path, or a folder with one manifest.
        name: name of the dataset, and optionally its version: `NAME:1.0.0`; by default taken from the folder, which may
            be `NAME/1.0.0`.
        labels: files with label maps, by feature. By default the label map that the conversion wrote, for the first of
            image/class/label, label and cls in the manifest.
        supervised: input and target of `as_supervised=True`; by default the image, if there is one, and its class.
        description: text about the dataset.
        citation: BibTeX entry of the dataset.
        overwrite: whether existing files of these names may be replaced.

    Returns:
        The paths of the files.

    Raises:
        OutputExistsError: when one of the files exists with other content, unless `overwrite`.
        SourceError: when there is no manifest, or a shard cannot be read.
        UsageError: when TensorFlow Datasets cannot read shards of these names or compression, or an argument is wrong.
    """
    first, folder = one_document(manifest)
    path, document = first.path, first.manifest
    first.check_records()
    if document.compressed:
        raise UsageError(_GZIP, shard=path, hint="convert without --compression")
    named, version = _name_and_version(name, folder)
    if INFO in document.documents:
        return [_renamed(os.path.join(folder, INFO), document, named, version)]
    classes = _classes(document, folder, labels or {})
    features = _features(document, path, classes)
    texts = {key: text for key, text in (("description", description), ("citation", citation)) if text}
    about = {"name": named, "version": version, **texts, **_supervised(features, supervised)}
    whole = {"pythonClassName": f"{_FEATURES}features_dict.FeaturesDict", "featuresDict": {"features": features}}
    files = {
        INFO: to_json(_dataset_info(document, about)),
        "features.json": to_json(whole),
        **{
            f"{feature.replace('/', '.')}.labels.txt": "".join(f"{name}\n" for name in names).encode()
            for feature, names in classes.items()
        },
    }
    paths = {os.path.join(folder, name): data for name, data in files.items()}
    AdjacentFiles().write(paths, "exists, and describes something else", overwrite=overwrite)
    return list(paths)


def _renamed(path: str, document: Manifest, name: str, version: str) -> str:
    """Change name and version in the TFDS description that a conversion copied from its input."""
    with open(path, "rb") as file:
        info = json.load(file)
    before = {split["name"]: split for split in info["splits"]}
    splits = [{**before.get(split["name"], {}), **split} for split in splits_of_shards(document.shards, name)]
    data = to_json({**info, "name": name, "version": version, "splits": splits})
    AdjacentFiles().write({path: data}, "exists", overwrite=True)
    return path


def check_output(output: Output, name: str | None) -> None:
    """Check, before a conversion, that TensorFlow Datasets will be able to read its output.

    Args:
        output: the output.
        name: name of the dataset, and optionally its version; None to take them from the folder.

    Raises:
        UsageError: when it will not, or the name is not valid.
    """
    _name_and_version(name, os.path.dirname(output.template.manifest()))
    if is_remote(output.path):
        raise UsageError("--tfds describes shards in a folder, not in a bucket", hint=RIGHT_NAMES)
    if why := why_no_tfds(output):
        raise UsageError(f"--tfds describes shards for TensorFlow Datasets, but {why}", hint=RIGHT_NAMES)


def _name_and_version(text: str | None, folder: str) -> tuple[str, str]:
    name, _, version = (text or "").partition(":")
    above, base = os.path.split(os.path.abspath(folder or "."))
    if _VERSION.fullmatch(base):  # NAME/VERSION, as TFDS lays folders out
        base, version = os.path.basename(above), version or base
    name = name or re.sub(r"\W+", "_", base).strip("_").lower()
    version = version or "1.0.0"
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise UsageError(
            f"{name!r} cannot be the name of a dataset", hint="use letters, digits and _, such as my_photos"
        )
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{version!r} is not a version", hint="write three numbers, such as my_photos:1.0.0")
    return name, version


# --- Splits ---


def _dataset_info(document: Manifest, about: Mapping[str, Any]) -> dict[str, Any]:
    splits = splits_of_shards(document.shards, about["name"])
    return {**about, "fileFormat": "tfrecord", "splits": splits}


def _supervised(features: Mapping[str, Mapping[str, object]], given: Sequence[str]) -> dict[str, object]:
    """Return the features for `as_supervised=True`: those given, or else the only image and its class.

    Raises:
        UsageError: when a feature does not exist, or not exactly two are given.
    """
    if given and (len(given) != 2 or not features.keys() >= {*given}):
        hint = f"name an input and a target, such as image,label; features: {', '.join(features)}"
        raise UsageError(f"--supervised: {','.join(given)!r} are not two features of the dataset", hint=hint)
    images = [name for name, feature in features.items() if "image" in feature]
    classes = [name for name in _LABELS if "classLabel" in features.get(name, ())]
    pair = given or (*images, *classes[:1])
    if len(pair) != 2 or not (given or len(images) == 1):
        return {}
    return {"supervisedKeys": {"tuple": {"items": [{"featureKey": name} for name in pair]}}}


# --- Features ---


def _classes(document: Manifest, folder: str, given: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the class names, in order of their numbers, of each feature that has a label map."""
    integers = [name for name, about in document.features.items() if about["encoding"] == "int64"]
    for feature in given:
        if feature not in integers:
            hint = f"features of whole numbers: {', '.join(integers) or 'none; see --type of tar2tf convert'}"
            raise UsageError(f"there is no feature {feature!r} that could hold the number of a class", hint=hint)
    files = dict(given)
    written = next((path for path in document.documents if path.endswith("labels.json")), None)
    first = next((name for name in _LABELS if name in integers), None)
    if written and first and not given:
        files[first] = os.path.join(folder, written)
    numbered = {name: _names(labels, folder) for name, labels in document.labels.items() if labels and name in integers}
    return {**numbered, **{name: _names(LabelMap.load(path), path) for name, path in files.items()}}


def _names(labels: Mapping[str, int], path: str) -> list[str]:
    numbers = {number: name for name, number in labels.items()}
    if min(numbers) < 0 or max(numbers) > 10 * len(numbers) + 1000:
        raise UsageError("has labels that are not numbered from 0", shard=path)
    return [numbers.get(number, f"unused-{number}") for number in range(max(numbers) + 1)]


def _features(document: Manifest, path: str, classes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    texts = [name for name, about in document.features.items() if about["encoding"] == "bytes" and not about["shape"]]
    images = _images(path, [name for name in texts if not is_optional(document.features[name], document.records)])
    return {
        name: _feature(
            feature,
            optional=is_optional(feature, document.records),
            image=images.get(name),
            classes=classes.get(name),
        )
        for name, feature in document.features.items()
    }


_Images: TypeAlias = "set[tuple[str, int]]"
"""The formats of encoded images, and the numbers of their channels."""


def _images(path: str, names: Sequence[str]) -> dict[str, _Images]:
    """Read all records; return, for given features, the image formats of each that holds nothing but images."""
    found: dict[str, _Images] = {name: set() for name in names}
    if not found:
        return {}
    process = ProcessResources()
    shards, _ = find_shards([path], None, process)  # the notes are for those who train with them
    records: Records[dict[str, Any]] = Records(shards, Indexes(""), process)
    for example in records:
        for name in [*found]:
            try:
                image = header(example[name])
                found[name].add((image.format, image.channels))
            except ImageError:
                del found[name]
        if not found:
            break
    return found


def _feature(
    feature: Mapping[str, Any], *, optional: bool, image: _Images | None, classes: Sequence[str] | None
) -> dict[str, Any]:
    """Describe one feature for TFDS; `image` are the formats of its values if all are encoded images."""
    encoding, shape, dtype = feature["encoding"], feature["shape"], feature["dtype"]
    stored = "string" if encoding in ("bytes", "raw") else dtype
    if optional:
        return _tensor([None], stored)
    if shape.count(None) > 1:  # TFDS would look for the shape under another name
        return _tensor([] if encoding == "raw" else [None], stored)
    if encoding == "raw":
        return _tensor(shape, dtype, encoding="bytes")
    if shape:
        return _tensor(shape, stored)
    if encoding == "bytes":
        return _image(image or set()) or {"pythonClassName": f"{_FEATURES}text_feature.Text", "text": {}}
    if classes:
        kind = "class_label_feature.ClassLabel"
        return {"pythonClassName": _FEATURES + kind, "classLabel": {"numClasses": str(len(classes))}}
    return _tensor([], dtype)


def _tensor(shape: Sequence[int | None], dtype: str, encoding: str = "none") -> dict[str, object]:
    kind = "tensor_feature.Tensor" if shape or encoding != "none" else "scalar.Scalar"
    about = {"shape": _shape(shape), "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": _FEATURES + kind, "tensor": about}


def _shape(shape: Sequence[int | None]) -> dict[str, object]:
    return {"dimensions": ["-1" if length is None else str(length) for length in shape]} if shape else {}


def _image(kinds: _Images) -> dict[str, object] | None:
    """Describe encoded images; None if TFDS's `Image` could not decode all of them unchanged.

    Images with different numbers of channels become RGB, or RGBA if all are PNGs and some have an alpha channel.
    """
    formats, channels = {name for name, _ in kinds}, {number for _, number in kinds}
    if not kinds or not formats <= {"jpeg", "png", "bmp", "gif"}:
        return None
    has_alpha = not channels <= {1, 3}
    if has_alpha and formats != {"png"}:
        return None
    common = channels.pop() if len(channels) == 1 and channels <= {1, 3, 4} else 4 if has_alpha else 3
    about = {"shape": _shape([None, None, common]), "dtype": "uint8"}
    if formats in ({"jpeg"}, {"png"}):
        about["encodingFormat"] = formats.pop()
    return {"pythonClassName": f"{_FEATURES}image_feature.Image", "image": about}
