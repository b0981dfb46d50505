"""A conversion and its inputs: everything that is known before an input is read."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.errors import Tar2tfError, UsageError
from tar2tf_cli.features.labels import AUTO, LabelMap
from tar2tf_cli.flow.choosing import keys_of
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.inputs.base import TarsSource
from tar2tf_cli.inputs.manifest import Document, Manifest, read_document
from tar2tf_cli.inputs.named import manifests_named
from tar2tf_cli.ops.select import natural
from tar2tf_cli.registry import find_format
from tar2tf_cli.spec.conversion import SHARDS, Conversion, Input
from tar2tf_cli.spec.urls import is_remote
from tar2tf_cli.stores import open_source, reach_of

if TYPE_CHECKING:
    from tar2tf_cli.inputs.joined import Joined
    from tar2tf_cli.spec.urls import ConnectionOptions

_MANIFESTS: Final = "*manifest.json"
_MOST_FOLDERS: Final = 16  # in which manifests are looked for


def find_inputs(
    conversion: Conversion, *, endpoint: str | None = None, source: Source | None = None
) -> tuple[Source, list[ObjectInfo]]:
    """Return the source of a conversion's inputs, and the inputs in order.

    A manifest stands for its shards. The manifests in the folders of inputs say in which order a whole folder is read
    and, where they are TFRecords, what dtypes and shapes their features have. Shards that an earlier run of the
    conversion wrote into the folder of the inputs are not listed.

    Args:
        conversion: what is converted.
        endpoint: URL of the store that holds the bucket.
        source: where the inputs are; defaults to the conversion's bucket.

    Raises:
        SourceError: when the bucket or an input does not exist.
        DamagedShardError: when a shard has another size than in the manifest that was named.
        UsageError: when a template or a URL is not valid.
    """
    spec = conversion.input
    reach = reach_of(spec.bucket, conversion, endpoint)
    documents: Sequence[Document] = ()
    listed = source is None and not spec.template and spec.kind in SHARDS
    if spec.kind in SHARDS and source is None:
        manifests = manifests_named(spec.bucket, spec.template, lambda bucket: open_source(bucket, **reach))
        documents = [read_document(path, **reach) for path in manifests]
    if documents:
        source, inputs = _listed_by(documents)
    else:
        source = source or _opened(conversion, endpoint)
        inputs = source.list(spec.template)
    assert source
    if listed:
        inputs = _without_output(conversion, source, inputs, reach)
    if source.capabilities().gives == "bytes":
        whole = listed and not source.templates
        names = [item.name for item in inputs]
        tars = whole and names != sorted(names, key=natural)  # else a manifest's order is this one, without asking
        documents = documents or documents_beside(source, inputs, reach, tars=tars)
        inputs = _described(source, inputs, documents, in_order=whole)
    source.joined = joined_to(conversion, endpoint)
    return source, inputs


def joined_to(conversion: Conversion, endpoint: str | None) -> list[Joined]:
    """Return what is joined to the samples of a conversion, as it is listed now.

    Raises:
        SourceError: when something is not there.
        UsageError: when it cannot be joined.
    """
    return [_joined(place, conversion, endpoint) for place in conversion.input.join]


def _joined(place: str, conversion: Conversion, endpoint: str | None) -> Joined:
    from tar2tf_cli.inputs.joined import JoinedShards, JoinedTable, is_table

    spec = conversion.input
    if is_table(place):
        return JoinedTable(place, spec.join_key)
    own = Input(place, key_split=spec.key_split, no_sign_request=spec.no_sign_request)
    source, inputs = find_inputs(replace(conversion, input=own), endpoint=endpoint)
    return JoinedShards(place, source, inputs, spec.key_split)


def _opened(conversion: Conversion, endpoint: str | None) -> Source:
    """The source of a conversion's inputs, chosen by their kind; the limit is on the samples that are not skipped."""
    if conversion.chooses or conversion.drop_duplicates:
        conversion = replace(conversion, limit=None)
    kind = import_module(f"tar2tf_cli.inputs.kinds.{conversion.input.kind}")
    return kind.open_input(conversion, endpoint)  # type: ignore[no-any-return]


def _listed_by(documents: Sequence[Document]) -> tuple[Source, list[ObjectInfo]]:
    """The shards that manifests list, which must have their sizes."""
    shards = [(one.folder, item) for one in documents for item in one.whole(one.manifest.shards)]
    if len(documents) == 1:
        return documents[0].folder, [item for _, item in shards]
    source = TarsSource(shards)
    return source, source.list(())


def _without_output(
    conversion: Conversion, source: Source, inputs: list[ObjectInfo], reach: ConnectionOptions
) -> list[ObjectInfo]:
    """The inputs of a folder without the shards that an earlier run of this conversion wrote into the same folder."""
    output = conversion.output
    if output.is_stream or not inputs:
        return inputs
    manifest = output.template.manifest()
    if _real(os.path.dirname(manifest)) != _real(os.path.dirname(source.locate(inputs[0].name))):
        return inputs
    try:
        written = read_document(manifest, **reach)
    except Tar2tfError:  # there is none
        return inputs
    names = {os.path.basename(shard.path) for shard in written.manifest.shards}
    return [item for item in inputs if os.path.basename(item.name) not in names]


def _real(folder: str) -> str:
    return folder.rstrip("/") if is_remote(folder) else os.path.realpath(folder)


def documents_beside(
    source: Source, inputs: Iterable[ObjectInfo], reach: ConnectionOptions, *, tars: bool = False
) -> list[Document]:
    """The manifests in the folders of inputs, perhaps not of tars; one that cannot be read says nothing."""
    folders: dict[str, None] = {}
    for item in inputs:
        if (tars or not find_format("tar").is_named(item.name)) and len(folders) < _MOST_FOLDERS:
            folders[os.path.dirname(source.locate(item.name))] = None
    documents = []
    for folder in folders:
        if not (is_remote(folder) or os.path.isdir(folder or ".")):
            continue
        with suppress(Tar2tfError):
            place = open_source(folder or ".", **(reach if is_remote(folder) else {}))
            paths = [place.locate(item.name) for item in place.list((_MANIFESTS,))]
            for path in paths:
                with suppress(Tar2tfError):
                    documents.append(read_document(path, **reach))
    return documents


def _described(
    source: Source, inputs: list[ObjectInfo], documents: Sequence[Document], *, in_order: bool
) -> list[ObjectInfo]:
    """Note what manifests say of TFRecords; with `in_order`, return the inputs in the order of one that has all."""
    where = {os.path.normpath(source.locate(item.name)): item for item in inputs}
    described = {}
    for document in documents:
        ordered = []
        for shard in document.manifest.shards:
            item = where.get(os.path.normpath(document.folder.locate(shard.path)))
            if item and item.size in (None, shard.bytes):
                ordered.append(item)
                if not find_format("tar").is_named(item.name):
                    described[item.name] = document.manifest.features
        if in_order and len(ordered) == len(inputs):
            inputs = ordered
    if described:
        source.described = described
    return inputs


_QUICK_INPUTS: Final = 8
_QUICK_BYTES: Final = 1 << 20  # converted in 10 ms, which starting two processes takes
_MOST_THREADS: Final = 8  # per process; each holds the interpreter lock for about a tenth of its time


class Plan(NamedTuple):
    """A conversion and the list of its inputs.

    Attributes:
        stems: the lane of each input: its stem if the output path has `<input>`, the split that it belongs to, or an
            empty text.
        labels: the label maps of features whose labels are `auto`, by name, once they are known.
        size: total size of the inputs in bytes as stored; None if the size of any is unknown.
    """

    conversion: Conversion
    source: Source
    inputs: list[ObjectInfo]
    stems: list[str]
    labels: Mapping[str, LabelMap] = MappingProxyType({})

    @property
    def size(self) -> int | None:
        sizes = [item.size for item in self.inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def lanes(self) -> Iterable[str]:
        """The names of the lanes of shards, in order; one can be there more than once."""
        return self.conversion.split or self.stems

    @property
    def work(self) -> Conversion:
        """The conversion that remains after the inputs are listed: a list source already applied shuffle and limit."""
        spec = replace(self.conversion, labels=self.label_maps) if self.labels else self.conversion
        if not self.source.capabilities().ordered:
            return spec
        return replace(spec, shuffle=False, limit=spec.limit if spec.chooses or spec.drop_duplicates else None)

    @property
    def label_maps(self) -> dict[str, LabelMap | str]:
        """The label map of each feature that has one, or `auto` where it is not yet known."""
        return {**self.conversion.labels, **self.labels}

    @property
    def records(self) -> int | None:
        """The number of records, if it is certain before anything is read; otherwise None."""
        spec = self.conversion
        uncertain = spec.ops or spec.split or spec.on_error == "skip" or spec.chooses or spec.drop_duplicates
        return None if uncertain else self.source.listing_info().samples

    @property
    def why_everything(self) -> str | None:
        """What makes each shard depend on all inputs, so that `--update` has to convert everything again; or None."""
        spec, source = self.conversion, self.source
        reasons = {
            "--shuffle": spec.shuffle,
            "--num-shards": spec.output.num_shards,
            "--limit": spec.limit is not None,
            f"--labels {AUTO}": AUTO in spec.labels.values(),
            "<total>": "total" in spec.output.template.fields,
            "an input that can be read only once": not source.capabilities().resumable,
            f"--from {spec.input.kind}": None in source.listing_info().documents.values(),
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    @property
    def tracked(self) -> bool:
        """Whether the manifest says which records came from which input."""
        return not self.conversion.output.is_stream and self.why_everything is None

    def readers(self, cpus: int) -> int:
        """How many inputs should be read at once: one where that is done before another process could help."""
        is_light = (
            self.conversion.is_light and not self.source.capabilities().remote and len(self.inputs) <= _QUICK_INPUTS
        )
        is_small = self.size is not None and self.size <= _QUICK_BYTES and len(self.inputs) <= _QUICK_INPUTS
        is_quick = is_light and is_small
        return 1 if is_quick else min(cpus, max(len(self.inputs), 2))

    def threads(self, cpus: int) -> int:
        """How many threads should work on each input, so that a few large inputs keep all CPUs busy."""
        wanted = self.source.capabilities().threads
        if wanted or not self.work.gains_by_threads:
            return wanted or 1
        return max(1, min(cpus // max(len(self.inputs), 1), _MOST_THREADS))

    @contextmanager
    def joined(self) -> Iterator[Sequence[Joined]]:
        """What is joined to the samples, which is closed at the end."""
        try:
            yield self.source.joined
        finally:
            for dataset in self.source.joined:
                dataset.close()

    def manifest(self) -> Manifest:
        """The part of the manifest that is known before anything is read."""
        spec = self.conversion.canonical()
        spec["input"].update(self.source.listing_info().identity)
        if self.conversion.input.keys:
            spec["input"]["keys_digest"] = keys_of(self.conversion.input.keys).digest
        if self.source.joined:
            spec["input"]["joined"] = [one.to_json() for one in self.source.joined]
        if described := _digest(self.source.described.values()):
            spec["input"]["described"] = described
        return Manifest(spec, self.inputs)

    def documents(self, described: str = "") -> dict[str, bytes]:
        """Paths and content of the files to be written beside the manifest.

        Args:
            described: the descriptions in the reports of all inputs, joined.
        """
        template, text = self.conversion.output.template, described.encode("utf-8", "surrogateescape")
        documents = self.source.listing_info().documents
        return {template.beside(name): text if data is None else data for name, data in documents.items()}


def make_plan(conversion: Conversion, *, endpoint: str | None = None, source: Source | None = None) -> Plan:
    """Find a conversion's inputs.

    Args:
        conversion: what to convert.
        endpoint: URL of the store that holds the bucket.
        source: where the inputs are; defaults to the conversion's bucket.

    Raises:
        SourceError: when the bucket or an input does not exist.
        UsageError: when the output path is a directory, or two inputs would have the same `<input>`.
    """
    folder = conversion.output.template.text
    if not is_remote(folder) and os.path.isdir(folder):
        hint = f"name the shards in it, such as {os.path.join(folder, '<>.record')!r}"
        raise UsageError(f"the output path {folder!r} is a directory", hint=hint)
    source, inputs = find_inputs(conversion, endpoint=endpoint, source=source)
    _check_labels(conversion, source)
    stems = lanes_of(conversion, inputs)
    if "input" in conversion.output.template.fields and len(set(stems)) < len(stems):
        stem, count = Counter(stems).most_common(1)[0]
        raise UsageError(f"{count} inputs have the same name for <input> in the output path, {stem!r}")
    return Plan(conversion, source, inputs, stems)


def lanes_of(conversion: Conversion, inputs: Sequence[ObjectInfo]) -> list[str]:
    """Return the lane of shards that each input has, or an empty text where lanes do not depend on inputs."""
    if "input" in conversion.output.template.fields:
        return [item.stem for item in inputs]
    if conversion.inputs_have_splits:
        return [item.name.partition("/")[0] for item in inputs]
    return [""] * len(inputs)


def _check_labels(conversion: Conversion, source: Source) -> None:
    """Refuse labels where there are no samples, and `auto` where the inputs cannot be read twice."""
    if conversion.labels and source.capabilities().gives == "examples":
        raise UsageError(f"--labels numbers texts of samples, but --from {conversion.input.kind} gives whole examples")
    if AUTO in conversion.labels.values() and not source.capabilities().repeatable:
        hint = "write it to a file first, or give --labels a file"
        raise UsageError(f"can be read only once, but --labels {AUTO} reads twice", shard=source.bucket, hint=hint)


def _digest(described: Iterable[Mapping[str, Mapping[str, Any]]]) -> str | None:
    """A digest of what manifests say of the features of inputs; None if they say nothing."""
    different = {id(features): features for features in described}.values()
    looks = [
        {name: [look["encoding"], look["dtype"], look["shape"]] for name, look in features.items()}
        for features in different
    ]
    return blake2b(json.dumps(looks, sort_keys=True).encode(), digest_size=16).hexdigest() if looks else None
