"""The plan of a conversion: its spec, its inputs, and everything else known before an input is read."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.api.values import KEY
from tar2tf_cli.errors import NoShardsError, Tar2tfError, UsageError
from tar2tf_cli.features.feature_map import AUTO
from tar2tf_cli.flow.sample_flow import ReadPlan
from tar2tf_cli.flow.select import keys_of
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.inputs.kinds import open_kind
from tar2tf_cli.inputs.manifest import Manifest, ShardEntry, read_document
from tar2tf_cli.inputs.shard_set import ShardSet, nothing_found, resolve
from tar2tf_cli.spec.conversion import SHARDS, Conversion, Input
from tar2tf_cli.spec.urls import ConnectionOptions, is_remote
from tar2tf_cli.stores import connection_options
from tar2tf_cli.structs import NamedTuple, replace

if TYPE_CHECKING:
    from tar2tf_cli.features.labels import LabelMap
    from tar2tf_cli.inputs.joined import Joined
    from tar2tf_cli.inputs.record_samples import Forms
    from tar2tf_cli.inputs.tfds_folder import TfdsFolder


def find_inputs(
    conversion: Conversion, *, endpoint: str | None = None, source: Source | None = None, paths: bool = False
) -> ShardSet:
    """Return the inputs of a conversion.

    Shards that an earlier run of the conversion wrote into the folder of the inputs are excluded.

    Args:
        conversion: the conversion.
        endpoint: URL of the store that holds the bucket.
        source: lists and opens the inputs; by default, the source of the conversion's bucket.
        paths: whether bucket and templates are files and folders of their own, if all of them exist.

    Raises:
        SourceError: when the bucket or an input does not exist.
        DamagedShardError: when the size of a shard differs from the named manifest.
        UsageError: when a template or a URL is not valid.
    """
    spec = conversion.input
    if source:
        return ShardSet.of(source, spec.template)
    if spec.kind not in SHARDS:
        return ShardSet.of(_opened(conversion, endpoint), spec.template)
    connection = connection_options(spec.bucket, conversion, endpoint)
    shards = _without_output(conversion, resolve(spec.bucket, spec.template, paths=paths, **connection), connection)
    if not (shards.items or shards.manifests):
        try:
            shards.source.list(())
        except NoShardsError as error:  # whose hint names the files that exist instead
            raise nothing_found(spec.bucket, error.hint) from None
        raise nothing_found(spec.bucket)
    shards.check_kinds()
    shards.check_totals()
    if not spec.ignore_gaps:
        shards.check_complete()
    return shards


def joined_to(conversion: Conversion, endpoint: str | None) -> list[Joined]:
    """Return the datasets joined to the samples of a conversion, as listed now.

    Raises:
        SourceError: when a dataset does not exist.
        UsageError: when a dataset cannot be joined.
    """
    return [_joined(dataset, conversion, endpoint) for dataset in conversion.input.join]


def _joined(dataset: str, conversion: Conversion, endpoint: str | None) -> Joined:
    from tar2tf_cli.inputs.joined import JoinedParquet, JoinedShards, JoinedTables, is_table
    from tar2tf_cli.inputs.parquet import ParquetFiles, is_parquet
    from tar2tf_cli.inputs.rows import TableFiles

    spec, many = conversion.input, conversion.input.join_many != "error"
    column = spec.joined_by.column if spec.joined_by else None
    if is_parquet(dataset):
        files = ParquetFiles(dataset, **connection_options(dataset, conversion, endpoint))
        return JoinedParquet(files, column or spec.join_key, many)
    if is_table(dataset):
        tables = TableFiles(dataset, **connection_options(dataset, conversion, endpoint))
        return JoinedTables(tables, column or spec.join_key, many)
    from tar2tf_cli.spec.sample_keys import selection_of

    key = selection_of(column, "--join-on") if column and column != KEY else None
    own = Input(dataset, key_split=spec.key_split, no_sign_request=spec.no_sign_request, ignore_gaps=spec.ignore_gaps)
    return JoinedShards(find_inputs(replace(conversion, input=own), endpoint=endpoint), spec.key_split, key, many)


def _opened(conversion: Conversion, endpoint: str | None) -> Source:
    """Return the source of a conversion's inputs, chosen by their kind; its limit ignores skipped samples."""
    if conversion.limits_results:
        conversion = replace(conversion, limit=None)
    return open_kind(conversion, endpoint)


def _without_output(conversion: Conversion, shards: ShardSet, connection: ConnectionOptions) -> ShardSet:
    """Return the inputs without the shards that an earlier run of this conversion wrote into the same folder."""
    output = conversion.output
    if output.is_stream or not shards.items:
        return shards
    manifest = output.template.manifest()
    own = [one for one in shards.unfinished if os.path.realpath(one.manifest) == os.path.realpath(manifest)]
    shards = replace(shards, unfinished=[one for one in shards.unfinished if one not in own])
    if not shards.listed:
        return shards
    if own:
        shards = shards.only(lambda item: not any(one.writes(shards.source.locate(item.name)) for one in own))
    if _real(os.path.dirname(manifest)) != _real(os.path.dirname(shards.source.locate(shards.items[0].name))):
        return shards
    try:
        written = read_document(manifest, **connection)
    except Tar2tfError:  # there is no manifest
        return shards
    names = {os.path.basename(shard.path) for shard in written.manifest.shards}
    return shards.only(lambda item: os.path.basename(item.name) not in names)


def _real(folder: str) -> str:
    return folder.rstrip("/") if is_remote(folder) else os.path.realpath(folder)


_QUICK_INPUTS: Final = 8
_QUICK_BYTES: Final = 1 << 20  # converted in 10 ms, the time that it takes to start two processes
_MOST_THREADS: Final = 8  # per process; each holds the interpreter lock for about a tenth of its time


class Plan(NamedTuple):
    """A conversion and the list of its inputs.

    Attributes:
        conversion: the conversion.
        shards: the inputs.
        stems: the lane of each input: its stem if the output path has `<input>`, its split, or an empty text.
        labels: the label maps of features whose labels are `auto`, by name, once a first pass has found them.
        joins: datasets whose entries are added to the samples.
        forms: the forms of features of TFRecords that no manifest describes; None if each input decides for itself.
    """

    conversion: Conversion
    shards: ShardSet
    stems: list[str]
    labels: Mapping[str, LabelMap] = MappingProxyType({})
    joins: Sequence[Joined] = ()
    forms: Forms | None = None

    @property
    def source(self) -> Source:
        """The source of the inputs."""
        return self.shards.source

    @property
    def inputs(self) -> Sequence[ObjectInfo]:
        """The inputs, in order."""
        return self.shards.items

    @property
    def size(self) -> int | None:
        """Total size of the inputs in bytes as stored; None if the size of any is unknown."""
        sizes = [item.size for item in self.inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def paths(self, inputs: Sequence[ObjectInfo]) -> Sequence[str]:
        """Return the paths and URLs that some inputs are read from, which an output must not replace."""
        known = self.source.listing_info().paths
        return [self.source.locate(item.name) for item in inputs] if known is None else known

    @property
    def lanes(self) -> Iterable[str]:
        """The lanes of shards, in order, possibly with repetitions."""
        return self.conversion.split or self.stems

    @property
    def work(self) -> Conversion:
        """The spec that remains after listing inputs: without shuffle and limit if an ordered source applied them."""
        spec = replace(self.conversion, labels=self.label_maps) if self.labels else self.conversion
        if not self.source.capabilities.ordered:
            return spec
        return replace(spec, shuffle=False, limit=spec.limit if spec.limits_results else None)

    @property
    def label_maps(self) -> dict[str, LabelMap | str]:
        """The label map of each labelled feature, or `auto` if the map is not known yet."""
        return {**self.conversion.labels, **self.labels}

    @property
    def records(self) -> int | None:
        """The number of records if it is certain before inputs are read; otherwise None."""
        spec = self.conversion
        uncertain = spec.ops or spec.split or spec.on_error == "skip" or spec.filters_by_key or spec.drop_duplicates
        return None if uncertain or spec.group_by else self.source.listing_info().samples

    @property
    def full_update_reason(self) -> str | None:
        """The reason why each shard depends on all inputs, so that `--update` converts everything again; or None."""
        spec, source = self.conversion, self.source
        reasons = {
            "--shuffle": spec.shuffle,
            "--num-shards": spec.output.num_shards,
            "--stratify": spec.stratify is not None,
            "--limit": spec.limit is not None,
            "--group-by": bool(self.group_lanes),
            f"--labels {AUTO}": AUTO in spec.labels.values(),
            "<total>": "total" in spec.output.template.fields,
            "an input that can be read only once": not source.capabilities.resumable,
            "TFRecords whose features no manifest describes": bool(self.undescribed),
            f"--from {spec.input.kind}": None in source.listing_info().documents.values(),
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    @property
    def group_lanes(self) -> Sequence[str]:
        """The lane of each input if groups of samples may continue in the next input of a lane; otherwise empty."""
        apart = "input" in self.conversion.output.template.fields or not self.source.capabilities.repeatable
        return () if apart or not self.conversion.group_by else self.stems

    @property
    def tracked(self) -> bool:
        """Whether the manifest records which records came from which input."""
        return not self.conversion.output.is_stream and self.full_update_reason is None

    def readers(self, cpus: int) -> int:
        """Return how many inputs to read at once: one if reading them ends before a second process could help."""
        is_light = (
            self.conversion.is_light and not self.source.capabilities.remote and len(self.inputs) <= _QUICK_INPUTS
        )
        is_small = self.size is not None and self.size <= _QUICK_BYTES and len(self.inputs) <= _QUICK_INPUTS
        is_quick = is_light and is_small
        return 1 if is_quick else min(cpus, max(len(self.inputs), 2))

    def threads(self, cpus: int) -> int:
        """Return how many threads work on each input, so that a few large inputs keep all CPUs busy."""
        wanted = self.source.capabilities.threads
        if wanted or not self.work.gains_by_threads:
            return wanted or 1
        return max(1, min(cpus // max(len(self.inputs), 1), _MOST_THREADS))

    @contextmanager
    def joined(self) -> Iterator[Sequence[Joined]]:
        """Return a context manager that gives the joined datasets and closes them."""
        try:
            yield self.joins
        finally:
            for dataset in self.joins:
                dataset.close()

    def notes(self) -> Iterator[str]:
        """Yield notes for the user about the inputs, one sentence each."""
        yield from self.shards.note_on_others()
        yield from self.shards.notes(of_faults=not self.conversion.input.ignore_gaps)
        if self.shards.tfds and self.conversion.keeps_entries and (why := self._why_no_tfds()):
            yield f"note: features.json and dataset_info.json are not written for the output: {why}"

    def read_plan(self) -> ReadPlan:
        """Return the settings by which inputs are read and samples become records."""
        return ReadPlan.of(self.work, self.source, self.joins, self.shards.described, self.shards.stems, self.forms)

    @property
    def needs_first_pass(self) -> bool:
        """Whether inputs must be read before the first sample is converted."""
        return bool(self.undescribed or self.conversion.stratify or AUTO in self.conversion.labels.values())

    @property
    def undescribed(self) -> Sequence[ObjectInfo]:
        """The inputs to read for the forms of features: none if records are copied or each input decides for itself."""
        spec, known = self.conversion, self.source.capabilities
        copies = spec.keeps_entries and spec.output.traits.carries_examples
        if copies or known.gives != "bytes" or not known.repeatable:
            return ()
        return self.shards.undescribed if len(self.shards.undescribed) > 1 else ()

    def manifest(self) -> Manifest:
        """Make the part of the manifest that is known before inputs are read."""
        spec = self.conversion.canonical()
        spec["input"].update(self.source.listing_info().identity)
        if self.conversion.input.keys:
            spec["input"]["keys_digest"] = keys_of(self.conversion.input.keys).digest
        if self.joins:
            spec["input"]["joined"] = [one.to_json() for one in self.joins]
        if described := _digest(self.shards.described.values()):
            spec["input"]["described"] = described
        return Manifest(spec, self.inputs)

    @property
    def tfds(self) -> TfdsFolder | None:
        """The files that describe the inputs for TensorFlow Datasets and will describe the output; None without any."""
        described = self.shards.tfds if self.conversion.keeps_entries else None
        return described if described and not self._why_no_tfds() else None

    def _why_no_tfds(self) -> str | None:
        from tar2tf_cli.inputs.tfds_folder import why_no_tfds  # imported here, as few inputs are described so

        return why_no_tfds(self.conversion.output)

    def documents(self, described: str = "", shards: Sequence[ShardEntry] = ()) -> dict[str, bytes]:
        """Return paths and contents of the files to write next to the manifest.

        Args:
            described: the descriptions in the reports of all inputs, joined.
            shards: the shards that were written.
        """
        template, text = self.conversion.output.template, described.encode("utf-8", "surrogateescape")
        documents = self.source.listing_info().documents
        files = {template.document_path(name): text if data is None else data for name, data in documents.items()}
        if tfds := self.tfds:
            folder = template.manifest().rpartition("/")
            files |= {"".join((*folder[:2], name)): data for name, data in tfds.for_shards(shards).items()}
        return files


def make_plan(
    conversion: Conversion, *, endpoint: str | None = None, source: Source | None = None, paths: bool = False
) -> Plan:
    """Find a conversion's inputs.

    Args:
        conversion: the conversion.
        endpoint: URL of the store that holds the bucket.
        source: lists and opens the inputs; by default, the source of the conversion's bucket.
        paths: whether bucket and templates are files and folders of their own, if all of them exist.

    Raises:
        SourceError: when the bucket or an input does not exist.
        UsageError: when the output path is a directory, or two inputs would have the same `<input>`.
    """
    folder = conversion.output.path
    if not is_remote(folder) and os.path.isdir(folder):
        hint = f"name the shards in it, such as {os.path.join(folder, '<>.record')!r}"
        raise UsageError(f"the output path {folder!r} is a directory", hint=hint)
    shards = find_inputs(conversion, endpoint=endpoint, source=source, paths=paths)
    if "split" not in conversion.output.template.fields:
        shards.check_one_split(keep="keep them with <split> in the output path, or ")
    _check_labels(conversion, shards.source)
    if conversion.inputs_have_splits and conversion.input.kind in SHARDS:
        _check_splits(shards)
    _check_keys(conversion, shards)
    stems = lanes_of(conversion, shards.items, shards.splits)
    _check_counts(conversion, stems)
    if "input" in conversion.output.template.fields and len(set(stems)) < len(stems):
        stem, count = Counter(stems).most_common(1)[0]
        raise UsageError(f"{count} inputs have the same name for <input> in the output path, {stem!r}")
    return Plan(conversion, shards, stems, joins=joined_to(conversion, endpoint))


def lanes_of(conversion: Conversion, items: Sequence[ObjectInfo], splits: Mapping[str, str]) -> list[str]:
    """Return the lane of shards for each input; an empty text if lanes do not depend on inputs."""
    if "input" in conversion.output.template.fields:
        return [item.stem for item in items]
    if not conversion.inputs_have_splits:
        return [""] * len(items)
    if conversion.input.kind not in SHARDS:
        return [item.name.partition("/")[0] for item in items]
    return [splits.get(item.name, "") for item in items]


def _check_splits(shards: ShardSet) -> None:
    """Raise an error for an output path with `<split>` if the inputs belong to no splits."""
    alone = next((item.name for item in shards.items if item.name not in shards.splits), None)
    if alone is not None:
        what = f"{alone} belongs to no split" if shards.splits else "no --split is given"
        hint = "add one, such as --split train=0.9,val=0.1"
        raise UsageError(f"the output path has <split>, but {what}", hint=hint)


def _check_keys(conversion: Conversion, shards: ShardSet) -> None:
    """Raise an error for numbers as keys that would restart with each input."""
    if conversion.input.key and conversion.input.key_template.fields == {"n"} and len(shards.items) > 1:
        what = f"--key {conversion.input.key} counts the samples of each input, and there are {len(shards.items)}"
        raise UsageError(what, hint="add <input>, such as '<input>/<n:09>'")


def _check_counts(conversion: Conversion, lanes: Sequence[str]) -> None:
    """Raise an error for `--num-shards` by split if the splits are not those of the inputs."""
    counts = conversion.output.num_shards
    if isinstance(counts, Mapping) and not conversion.split and set(counts) != set(lanes):
        names = f"--num-shards has {', '.join(counts)}, but the inputs have {', '.join(dict.fromkeys(lanes))}"
        raise UsageError(names, hint="give a number for each split")


def _check_labels(conversion: Conversion, source: Source) -> None:
    """Raise an error for labels of inputs without samples, and for `auto` if the inputs cannot be read twice."""
    if conversion.labels and source.capabilities.gives == "examples":
        raise UsageError(
            f"--labels numbers texts of samples, but --from {conversion.input.kind} produces complete examples"
        )
    if AUTO in conversion.labels.values() and not source.capabilities.repeatable:
        hint = "write it to a file first, or give --labels a file"
        raise UsageError(f"can be read only once, but --labels {AUTO} reads twice", shard=source.bucket, hint=hint)
    if conversion.stratify and not source.capabilities.repeatable:
        what = "can be read only once, but --stratify reads twice"
        raise UsageError(what, shard=source.bucket, hint="write it to a file first")


def _digest(described: Iterable[Mapping[str, Mapping[str, object]]]) -> str | None:
    """Return a digest of the feature descriptions in the inputs' manifests; None without any."""
    different = {id(features): features for features in described}.values()
    looks = [
        {name: [look["encoding"], look["dtype"], look["shape"]] for name, look in features.items()}
        for features in different
    ]
    return blake2b(json.dumps(looks, sort_keys=True).encode(), digest_size=16).hexdigest() if looks else None
