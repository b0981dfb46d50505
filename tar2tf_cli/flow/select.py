"""Selection of samples by their keys, before any op: skips samples (`--keys`, `--sample`), adds entries of other
datasets (`--join`), and computes the digests by which duplicates are found.
"""

from __future__ import annotations

import codecs
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain, compress, pairwise, repeat
from itertools import count as count_up
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.api.source import OnFault
from tar2tf_cli.api.values import KEY, Batch, Form, RecordBatch, Sample
from tar2tf_cli.errors import SampleError, SourceError, UsageError, changed, count, few, read_failed
from tar2tf_cli.features.feature_map import Schema, is_array_of_objects
from tar2tf_cli.formats import kernel
from tar2tf_cli.formats.checksums import HashTable, blake2b, hash64, key_hash
from tar2tf_cli.formats.files import StoredBytes
from tar2tf_cli.inputs.reader import InputReader
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.ops.base import ANY, as_flag, leading_filters, missing_entry
from tar2tf_cli.spec.conversion import Conversion, Input
from tar2tf_cli.spec.urls import without_secrets

if TYPE_CHECKING:
    from tar2tf_cli.flow.columns import FeatureColumns
    from tar2tf_cli.inputs.joined import Joined, Match


_BLOCK: Final = 1 << 20


class KeyList:
    """The set of keys in a key list file (`spec/key_lists.py`), in 16 bytes of memory per key.

    The fast hash, whose collisions are easy to construct, only finds candidates; a digest decides. The digest depends
    on the whole file, so that nobody can search for two keys with the same digest.

    Args:
        path: the file.

    Attributes:
        digest: digest of the file's bytes.

    Raises:
        SourceError: when the file cannot be read, or lists no key.
    """

    def __init__(self, path: str) -> None:
        from tar2tf_cli.spec.key_lists import has_escapes, keys_in

        self._path = path
        self._version = _version(path)
        digest, hashes, native = blake2b(digest_size=8), array("Q"), kernel.native()
        for block in _blocks(path, digest.update):
            if native and not has_escapes(block):
                hashes.frombytes(native.hashes(block))
            else:
                hashes.extend(map(key_hash, keys_in(block)))
        if not hashes:
            raise SourceError("lists no keys", shard=path, hint="write one key per line, as tar2tf inspect --keys does")
        self._hashes, self._seed = HashTable(hashes), digest.digest()
        self._digests = HashTable(array("Q", map(self._digest_of, self._listed())))
        self.digest = digest.hexdigest()

    def _listed(self) -> Iterator[bytes]:
        from tar2tf_cli.spec.key_lists import keys_in

        return chain.from_iterable(map(keys_in, _blocks(self._path)))

    def _digest_of(self, key: bytes) -> int:
        return int.from_bytes(blake2b(key, digest_size=8, key=self._seed).digest(), "little")

    def __len__(self) -> int:
        return len(self._digests)

    def find(self, key: bytes) -> int:
        """Return the number of a key, as for `missing`; -1 if the file does not list it."""
        return -1 if self._hashes.find(key_hash(key)) < 0 else self._digests.find(self._digest_of(key))

    def find_all(self, batch: Batch) -> list[int]:
        """Return the number of each key of a batch; -1 if the file does not list it."""
        numbers = self._hashes.find_all(batch.hashes)
        return [
            number if number < 0 else self._digests.find(self._digest_of(key))
            for number, key in zip(numbers, batch.keys(), strict=True)
        ]

    def missing(self, present: bytearray) -> list[str]:
        """Return the keys, in the order of the file, whose numbers have a 0 in `present`.

        Raises:
            SourceError: when the file changed after it was read.
        """
        if 0 not in present:
            return []
        if _version(self._path) != self._version:
            raise changed(self._path)
        listed, missing = bytearray(present), list[str]()
        for key in self._listed():
            number = self._digests.find(self._digest_of(key))
            if number >= 0 and not listed[number]:
                listed[number] = 1
                missing.append(key.decode("utf-8", "surrogateescape"))
        return missing

    def error(self, missing: Sequence[str]) -> SourceError:
        """Make the error for keys that no input has."""
        return SourceError(
            f"no input has these {len(missing):,} of {count(len(self), 'key')}: {few(missing, 20)}",
            shard=self._path,
            hint="pass --keys-missing skip to convert the others; the manifest then lists the missing keys",
        )


def _blocks(path: str, each: Callable[[bytes], object] = len) -> Iterator[bytes]:
    """Iterate over blocks of whole lines of a file; `each` is called with all bytes read."""
    mark = codecs.BOM_UTF8
    try:
        with open(path, "rb") as file:
            while lines := file.readlines(_BLOCK):
                block = b"".join(lines)
                each(block)
                yield block.removeprefix(mark)
                mark = b""
    except OSError as error:
        raise read_failed(path, error) from None


def _version(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise read_failed(path, error) from None
    return status.st_size, status.st_mtime_ns, status.st_ino


def keys_of(path: str) -> KeyList:
    """Return the keys in a key list file, which is read once per process unless it changes; forked processes share
    them.
    """
    return _keys(path, _version(path))


@lru_cache(maxsize=1)
def _keys(path: str, version: tuple[int, ...]) -> KeyList:
    return KeyList(path)


class KeyFilter:
    """Decides by a sample's key whether it is converted.

    Args:
        conversion: contains the key list file, and the fraction of samples with its seed.
    """

    def __init__(self, conversion: Conversion) -> None:
        self._keys = keys_of(conversion.input.keys) if conversion.input.keys else None
        self._seed = b"sample\0%d\0" % conversion.seed
        self._part = None if conversion.sample is None else int(conversion.sample * 2**64)

    def takes(self, key: str, report: InputReport) -> bool:
        """Whether to convert the sample with a key; the report counts skipped samples and records listed keys."""
        data = key.encode("utf-8", "surrogateescape")
        return self._takes(data, self._keys.find(data) if self._keys else 0, report)

    def accepts_each(self, batch: Batch, report: InputReport) -> list[bool]:
        """Decide for each sample of a batch whether to convert it."""
        numbers = self._keys.find_all(batch) if self._keys else repeat(0, len(batch))
        keys = repeat(b"", len(batch)) if self._part is None else batch.keys()
        return [self._takes(key, number, report) for key, number in zip(keys, numbers, strict=True)]

    def _takes(self, key: bytes, number: int, report: InputReport) -> bool:
        """Decide whether to convert the sample with a key, given its number in the key list, or -1 without one."""
        if number < 0:
            report.filtered["--keys"] += 1
            return False
        if self._keys:
            report.keys.append(number)
        if self._part is not None and hash64(self._seed + key) >= self._part:
            report.filtered["--sample"] += 1
            return False
        return True


class Join:
    """Adds the entries of joined datasets to samples with equal keys.

    Args:
        datasets: the joined datasets, in order.
        spec: contains the fields to compare, and the treatment of a sample with no match or several.
    """

    def __init__(self, datasets: Sequence[Joined], spec: Input) -> None:
        self._datasets = datasets
        self._missing, self._many = spec.join_missing, spec.join_many
        self._on = spec.joined_by.selection if spec.joined_by else None

    @property
    def takes_batches(self) -> bool:
        """Whether batches can be joined: by the key of the sample, with at most one match each."""
        return self._many == "error" and self._on is None

    def results(self, sample: Sample, report: InputReport) -> list[Sample]:
        """Return a sample with the added entries: no sample if it is skipped, several if it is repeated.

        Raises:
            SampleError: when a dataset has no match.
            UsageError: when entries of a dataset have the names of entries that it has already.
        """
        results = [sample]
        for number, dataset in enumerate(self._datasets):
            matches = self._matches(dataset, sample)
            first: list[int | None] = [matches[0].row if matches else None]
            more = [match.row for match in matches[1:]]
            report.add_matches(first, [sample[KEY]], number, len(self._datasets), more)
            if not matches and self._missing == "skip":
                report.filtered["--join"] += 1
                return []
            if not matches and self._missing == "error":
                hint = "pass --join-missing skip to skip such samples, or keep to convert them without its entries"
                what = f"has no match in {without_secrets(dataset.bucket)}, where {dataset.some_key()!r} is a key"
                raise SampleError(what, hint=hint)
            added = [match.entries for match in matches] or [{}]
            if self._many == "list" and matches:
                added = [_as_lists(added)]
            for entries in added:
                _check_apart(results[0], entries, dataset)
            results = [{**result, **entries} for result in results for entries in added]
        return results

    def _matches(self, dataset: Joined, sample: Sample) -> list[Match]:
        """Return the matches of a sample in a dataset; none if the sample lacks the value to compare."""
        if self._on is None:
            return dataset.find(sample[KEY])
        from tar2tf_cli.spec.sample_keys import text_in

        try:
            return dataset.find(text_in(sample, self._on, "--join-on"))
        except SampleError:
            if self._missing == "error":
                raise
            return []

    def join(self, native: ModuleType, batch: Batch, report: InputReport) -> Batch | None:
        """Return the samples of a batch with joined entries, without skipped samples.

        Returns:
            None if an error is possible.
        """
        if not self.takes_batches:
            return None
        for number, dataset in enumerate(self._datasets):
            if (joined := dataset.join(native, batch)) is None:
                return None
            rows, batch = joined
            missing = rows.count(None)
            if missing and self._missing == "error":
                return None
            report.add_matches(rows, batch.keys() if missing else (), number, len(self._datasets))
            if missing and self._missing == "skip":
                batch = batch.compress([row is not None for row in rows])
                report.filtered["--join"] += missing
        return batch


def _as_lists(rows: Sequence[Sample]) -> Sample:
    """Combine the entries of several rows to a list of values for each name.

    Raises:
        SampleError: when a row lacks an entry of another row, since the lists would no longer correspond.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if any(name not in row for row in rows):
            hint = "give all rows of a key the same columns, or use --join-many repeat"
            raise SampleError(f"only some of the {len(rows)} rows that match have {name!r}", hint=hint)
    return {name: [row[name] for row in rows] for name in names}


def _check_apart(sample: Sample, entries: Sample, dataset: Joined) -> None:
    """Raise an error if entries of a dataset have names of entries that the sample already has."""
    if both := [name for name in entries if name in sample]:
        what = f"{'the entry' if len(both) == 1 else 'the entries'} {few(both, 8)}"
        hint = "rename or leave them out on one side by a conversion before this one, as ops follow the join"
        raise UsageError(f"has {what}, and so has {without_secrets(dataset.bucket)}", hint=hint)


class SampleKey(str):
    """The key of a sample, with the digest that identifies its duplicates, and the values that decide its split.

    Attributes:
        digest: both halves of the digest, as numbers below 2**64.
        group: the value by which the sample is assigned to a split; None if its key decides.
        stratum: the value whose samples are divided among splits in proportion; None without `--stratify`.
    """

    digest: tuple[int, int] = (0, 0)
    group: bytes | None = None
    stratum: str | None = None


def digest_in(key: str | None, previous: str | None) -> tuple[int, int]:
    """Return the digest attached to a record's key; 0 and 0 if the previous record is of the same sample."""
    return key.digest if isinstance(key, SampleKey) and key is not previous else (0, 0)


def group_in(key: str) -> bytes | None:
    """Return the group attached to a record's key; None without one."""
    return key.group if isinstance(key, SampleKey) else None


def stratum_in(key: str) -> str | None:
    """Return the stratum attached to a record's key; None without one."""
    return key.stratum if isinstance(key, SampleKey) else None


class SplitGroups:
    """Attaches the values that decide a sample's split to its key.

    Args:
        conversion: contains `--split-by` or `--stratify`; with `--stratify`, the sample's own key is its group.
    """

    def __init__(self, conversion: Conversion) -> None:
        from tar2tf_cli.spec.sample_keys import selection_of, text_in

        self._stratifies = conversion.stratify is not None
        self._flag = "--stratify" if self._stratifies else "--split-by"
        selection = selection_of(conversion.stratify or conversion.split_by or "", self._flag)
        self._value_of = partial(text_in, selection=selection, flag=self._flag)

    def __call__(self, sample: Sample) -> None:
        """Replace the key of a sample.

        Raises:
            SampleError: when the sample lacks the value of `--split-by` or `--stratify`.
        """
        key = sample[KEY] if isinstance(sample[KEY], SampleKey) else SampleKey(sample[KEY])
        value = self._value_of(sample)
        key.group = (key if self._stratifies else value).encode("utf-8", "surrogateescape")
        key.stratum = value if self._stratifies else None
        sample[KEY] = key


class SampleDigester:
    """Attaches the digest of a sample's content to its key.

    Args:
        entry: the entry to compare; `*` for all entries, regardless of their order.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry

    def __call__(self, sample: Sample) -> None:
        """Replace the key of a sample.

        Raises:
            SampleError: when the sample lacks the entry.
        """
        if self._entry == ANY:
            names = sorted(name for name in sample if name != KEY)
        elif self._entry in sample:
            names = [self._entry]
        else:
            option = "--drop-duplicates"
            raise missing_entry(sample, f"{option}: has no entry {self._entry!r}", self._entry, option)
        key = SampleKey(sample[KEY])
        key.digest = _digest(sample, names)
        sample[KEY] = key

    def of_batch(self, native: ModuleType, batch: Batch) -> list[tuple[int, int]] | None:
        """Return the digest of each sample of a batch; None if an error is possible."""
        if self._entry != ANY:
            samples = _samples_with(batch, self._entry)
            return [_digest(sample, [self._entry]) for sample in samples] if all(samples) else None
        from xxhash import xxh3_128_intdigest

        if (made := batch.encode(native, "content")) is None:
            return None
        data, sizes = made
        ends = [*accumulate(array("Q", sizes), initial=0)]
        return [divmod(xxh3_128_intdigest(data[start:end]) or 1, 1 << 64) for start, end in pairwise(ends)]


def _digest(sample: Sample, names: Sequence[str]) -> tuple[int, int]:
    """Compute a digest of some entries, 128 bits (XXH3)."""
    import xxhash  # imported here, as few conversions need it

    state = xxhash.xxh3_128()
    for name in names:
        value = sample[name]
        kind = f"{value.dtype} {value.shape}" if hasattr(value, "dtype") else type(value).__name__
        if isinstance(value, StoredBytes):
            kind = "bytes"
        state.update(f"{name}\0{kind}\0{len(value) if kind == 'bytes' else 0}\0".encode("utf-8", "surrogateescape"))
        for piece in _pieces(value):
            state.update(piece)
    return divmod(state.intdigest() or 1, 1 << 64)


def _pieces(value: object) -> Iterable[bytes]:
    if isinstance(value, StoredBytes):
        return value.pieces()
    if isinstance(value, bytes):
        return (value,)
    if is_array_of_objects(value):
        return _pieces(value.tolist())
    if hasattr(value, "tobytes"):
        return (value.tobytes(),)
    return (repr(value).encode("utf-8", "surrogateescape"),)


def _samples_with(batch: Batch, name: str) -> list[Sample]:
    """Return the samples of a batch, each reduced to the entry of a given name, if it has one."""
    return [{} if value is None else {name: value} for value in batch.column(name)]


class _BatchEncoder:
    """Encodes the selected samples of a batch as records, with the kernel.

    Args:
        conversion: defines the features of the records.
        native: the kernel.
        form: whether the records are examples or members of a tar.
        needs_keys: whether records are returned with their keys.

    Attributes:
        native: the kernel.
    """

    def __init__(self, conversion: Conversion, native: ModuleType, form: Form, *, needs_keys: bool) -> None:
        self.native = native
        self._form = form
        self._needs_keys = needs_keys
        self._columns: FeatureColumns | None = None
        if not conversion.only_filters_or_joins:
            from tar2tf_cli.flow.columns import FeatureColumns

            self._columns = FeatureColumns(conversion)
        self._key_split = conversion.input.key_split

    def names(self, batch: Batch) -> set[str]:
        """Return the names of the features of a batch's records, without that of the key."""
        return (self._columns.names(batch) if self._columns else {*chain.from_iterable(batch.names())}) - {KEY}

    def records(self, batch: Batch, digests: list[tuple[int, int]], schema: Schema) -> RecordBatch | None:
        """Return the records of a batch, whose features are added to a schema; None if there may be an error.

        Raises:
            SampleError: when a feature has another kind than in the schema.
        """
        if columns := self._columns:
            encoded = columns.encode(self.native, batch)
        else:
            encoded = batch.encode(self.native, self._form, key_split=self._key_split)
        if encoded is None:
            return None
        schema.update(columns.schema(batch) if columns else self._schema(batch))
        return RecordBatch(*encoded, batch.keys() if self._needs_keys else (), batch.hashes.tobytes(), digests)

    def _schema(self, batch: Batch) -> Schema:
        """Return the schema of entries that are the features."""
        if self._form == "members":
            return Schema(batch.count_names(), {})
        from tar2tf_cli.flow.columns import looks_in

        return Schema(batch.count_names(), looks_in(batch))


class SampleFilter:
    """Selects samples by their keys before any op, and joins entries to them, singly or in batches.

    The samples of a batch with a possible error are processed by the functions for single samples, which implement all
    rules.

    Args:
        conversion: contains the rules of selection, and whether duplicates are skipped later.
        joined: datasets whose entries are added.
        native: the kernel, if it makes the records; ops then only skip samples by one of their entries
            (`Op.filter_entry`).
        context: the context of ops.
        check_name: raises SampleError for a key and name that no member of a tar can have; None if records are made.

    Attributes:
        is_idle: whether all samples pass unchanged.
    """

    def __init__(
        self,
        conversion: Conversion,
        joined: Sequence[Joined],
        native: ModuleType | None,
        context: OpContext,
        check_name: Callable[[str, str], None] | None,
    ) -> None:
        self._keys = KeyFilter(conversion) if conversion.filters_by_key else None
        self._template = conversion.input.key_template if conversion.input.key else None
        self._join = Join(joined, conversion.input) if joined else None
        self._digester = SampleDigester(conversion.drop_duplicates) if conversion.drop_duplicates is not None else None
        self._groups = SplitGroups(conversion) if conversion.split_by or conversion.stratify else None
        self._encoder = None
        if native:
            form: Form = "members" if check_name else "record"
            needs_keys = bool(conversion.split or self._digester or check_name)
            self._encoder = _BatchEncoder(conversion, native, form, needs_keys=needs_keys)
        self.is_idle = not (self._template or self._keys or self._join or self._digester or self._groups)
        self._takes_batches = not (self._template or self._groups) and (self._join is None or self._join.takes_batches)
        self._filters, self._context = leading_filters(conversion.ops), context
        self._keeps_batches = (
            self.is_idle and conversion.only_filters_or_joins and not (conversion.ops or conversion.split)
        )
        self._check_name = check_name

    def apply(
        self, samples: Iterator[Sample | Batch], reader: InputReader, on_fault: OnFault
    ) -> Iterator[Sample | Batch | RecordBatch]:
        """Iterate over the selected samples, with joined entries, and with digests if duplicates are skipped later.

        Batches from which some samples are skipped, or to which entries are joined, are encoded as records.

        Args:
            samples: the samples of an input.
            reader: reads the input; its report counts skipped samples.
            on_fault: called with the error of each faulty sample.

        Raises:
            UsageError: when entries of a dataset have the names of entries that a sample has already.
        """
        if self.is_idle and (self._encoder is None or (self._keeps_batches and not reader.records)):
            return samples
        return self._selected(samples, reader, on_fault)

    def _selected(
        self, samples: Iterable[Sample | Batch], reader: InputReader, on_fault: OnFault
    ) -> Iterator[Sample | RecordBatch]:
        numbers = count_up()
        for item in self._one_by_one(samples, reader):
            if not isinstance(item, Batch):
                yield from self.results(item, reader, on_fault, next(numbers))
            elif (records := self._records(item, reader.report)) is None:
                for sample in reader.content.one_by_one(item):
                    yield from self.results(sample, reader, on_fault)
            elif len(records):
                yield records

    def _one_by_one(self, samples: Iterable[Sample | Batch], reader: InputReader) -> Iterator[Sample | Batch]:
        """Iterate over samples, splitting up the batches that cannot be selected as such."""
        for item in samples:
            if isinstance(item, Batch) and not self._takes_batches:
                yield from reader.content.one_by_one(item)
            else:
                yield item

    def results(self, sample: Sample, reader: InputReader, on_fault: OnFault, number: int = 0) -> list[Sample]:
        """Select one sample: return it with joined entries and perhaps a digest; no sample if it is skipped.

        Args:
            sample: the sample.
            reader: reads the input; its report counts skipped samples.
            on_fault: called with the error of a faulty sample.
            number: the number of the sample in its input, from 0, for numbered keys.

        Raises:
            UsageError: when entries of a dataset have the names of entries that it has already.
        """
        report, own = reader.report, sample[KEY]
        try:
            if self._template:
                sample = {**sample, KEY: self._template.key(sample, reader.stem, number)}
            if self._keys and not self._keys.takes(sample[KEY], report):
                return []
            results = self._join.results(sample, report) if self._join else [sample]
            for result in results:
                if self._digester:
                    self._digester(result)
                if self._groups:
                    self._groups(result)
        except SampleError as error:
            on_fault(error.at(key=own).at(**reader.where()))
            return []
        except UsageError as error:
            raise error.at(shard=reader.name, key=own) from None
        return results

    def _records(self, batch: Batch, report: InputReport) -> RecordBatch | None:
        """Encode and count the selected samples of a batch; return None if they must be selected singly."""
        assert self._encoder
        counted = InputReport()
        try:
            selected = self._of_batch(batch, counted, self._encoder.native)
            if selected is None or (len(selected[0]) < len(batch) and not batch.is_uniform):
                return None
            if check := self._check_name:
                for name in self._encoder.names(selected[0]):
                    check(batch.first, name)
            records = self._encoder.records(*selected, report.schema)
        except (SampleError, UsageError):
            return None
        if records is None:
            return None
        report.samples += len(records)
        report.filtered += counted.filtered
        report.keys += counted.keys
        report.take_matches(counted)
        return records

    def _of_batch(
        self, batch: Batch, report: InputReport, native: ModuleType
    ) -> tuple[Batch, list[tuple[int, int]]] | None:
        """Return the selected samples of a batch, with the joined entries, and their digests."""
        if self._keys:
            batch = batch.compress(self._keys.accepts_each(batch, report))
        if self._join:
            if (joined := self._join.join(native, batch, report)) is None:
                return None
            batch = joined
        if (self._digester or self._filters) and not batch.has_single_bytes:
            return None
        digests: list[tuple[int, int]] = []
        if self._digester:
            if (made := self._digester.of_batch(native, batch)) is None:
                return None
            digests = made
        for op in self._filters:
            assert op.filter_entry is not None
            samples = _samples_with(batch, op.filter_entry)
            kept = [op.apply(sample, self._context) is not None for sample in samples]
            batch = batch.compress(kept)
            digests = [*compress(digests, kept)]
            report.filtered[as_flag(op)] += len(samples) - len(batch)
        return batch, digests
