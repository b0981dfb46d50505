"""The protocol between a conversion and a transformer: settings, and framed records that an end record completes.

The settings alone determine the records of an input. The end record proves that none is missing.

The whole response has TFRecord framing. Records whose data begins with a NUL byte are not examples, as no serialised
message can begin with one (it would be a tag of field 0):

| data | meaning |
|---|---|
| `\0key ` and the key in UTF-8 | the key of the next record's sample, if the settings ask for keys |
| `\0end ` and a JSON object | the end: what was sent, and the report of the input |
| `\0err ` and the text of an error | the end of an answer that was being sent when its input proved faulty |
| `\0done` | follows the end: an answer without these bytes broke off, whatever a cluster appended to it |

The end record has `records` and `bytes`, the number of examples and of all bytes before the end record; `crc32c`, the
CRC of these bytes; `size`, the stored size of the input; `settings`, the digest of the transformer's settings; and
`report`, an `InputReport` equal to that of a conversion that reads the input itself. If the cluster stores the records
as a shard, the end record is requested separately, and also has the records' `xxh64`.

If samples are sent instead of records, each is an example, in which entries are bytes and arrays are npy files. An
array whose values can be derived from uint8, such as an image that was only converted to float32, is sent as uint8,
with a quarter of the bytes. The name of its feature says which dtype it had:

| name of the feature | its npy file |
|---|---|
| `NAME\0npy` | the array |
| `NAME\0whole DTYPE` | its values, whole numbers from 0 to 255, as uint8 |
| `NAME\0scaled DTYPE` | the uint8 values of which `convert_dtype` makes it |
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

import tar2tf_cli.errors as errors
from tar2tf_cli.api.objects import Readable
from tar2tf_cli.api.values import KEY, Array, Record, RecordBatch, Sample
from tar2tf_cli.errors import DamagedShardError, RemoteError, SourceError, Tar2tfError, UsageError
from tar2tf_cli.formats.checksums import blake2b, crc32c
from tar2tf_cli.formats.example import FRAMING, frame, parse, record_length, unframed
from tar2tf_cli.formats.npy import read_array
from tar2tf_cli.formats.streams import Cursor
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.ops.base import runs_own_code
from tar2tf_cli.ops.func import Func, receive_source
from tar2tf_cli.spec import __version__, yaml_file
from tar2tf_cli.spec.conversion import Conversion

if TYPE_CHECKING:
    from typing_extensions import NotRequired

    from tar2tf_cli.formats.files import RecordFile


ENVIRONMENT: Final = "TAR2TF_ETL_SETTINGS"
"""The variable from which a transformer reads its settings."""

TARGET: Final = "AIS_TARGET_URL"
"""The variable with the URL of the pod's target, which the cluster sets."""

NODES: Final = "TAR2TF_ETL_NODES"
"""The variable with addresses of nodes of the cluster, separated by commas; they know the others."""

_ELSEWHERE: Final = ("output", "shuffle", "split", "max_errors", "max_lost")
"""Options about records once they are made, or about the results of several inputs, which no transformer needs."""

_OF_FEATURES: Final = ("select", "preset", "image_size", "types", "labels")
"""Options about samples after the ops."""

_BUCKET: Final = {"bucket": "-"}
_OUTPUT: Final = "<split>-<>.record"
"""The bucket and the output that a conversion must have, and a transformer does not use."""


@dataclass(frozen=True)
class Settings:
    """The settings of a transformer.

    Attributes:
        spec: the canonical spec without options that do not concern a single input.
        keys: whether the key of each sample, which decides its split, is sent.
        sources: the files of the user's functions, by the paths in the spec.
    """

    spec: Mapping[str, Any]
    keys: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, conversion: Conversion) -> Settings:
        """Return a conversion's settings.

        Raises:
            RemoteError: when the conversion calls a user's function that is not in a file, or has options that do not
                work in a cluster.
        """
        sources = _sources_of(conversion)
        if conversion.input.kind != "tar":
            raise RemoteError("a cluster converts only tars", hint="leave out --from, or convert without --remote-exec")
        for flag, given in {
            "--drop-duplicates": conversion.drop_duplicates,
            "--group-by": conversion.group_by,
            "--join": conversion.input.join,
            "--key": conversion.input.key,
            "--keys": conversion.input.keys,
            "--split-by": conversion.split_by,
            "--stratify": conversion.stratify,
        }.items():
            if given:
                hint = f"leave out {flag}, or convert without --remote-exec"
                raise RemoteError(f"{flag} does not work in a cluster", hint=hint)
        spec = {name: value for name, value in conversion.canonical().items() if name not in _ELSEWHERE}
        spec["input"] = {name: value for name, value in spec["input"].items() if name not in ("bucket", "template")}
        if conversion.shuffle:
            spec.pop("limit", None)  # the limit applies to the samples of all inputs together
        settings = cls({name: value for name, value in spec.items() if value != {}}, bool(conversion.split), sources)
        if (size := len(settings.text)) > _MOST_SETTINGS:
            what = f"the settings of the transformer, with files of functions, have {size:,} bytes"
            hint = "make the files smaller, or put what they use into the image of the pods"
            raise RemoteError(f"{what}, and may have {_MOST_SETTINGS:,}", hint=hint)
        return settings

    @classmethod
    def load(cls, text: str, sources: Mapping[str, str] | None = MappingProxyType({})) -> Settings:
        """Parse settings from JSON.

        Args:
            text: the JSON.
            sources: the files of functions that may run in this process; None for all, as in a pod.

        Raises:
            UsageError: when the settings are invalid or of another version, or call functions that may not run in this
                process.
        """
        try:
            whole = json.loads(text)
            version, settings = whole["version"], cls(whole["spec"], bool(whole["keys"]), whole.get("sources", {}))
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{ENVIRONMENT} does not hold the settings of a transformer") from None
        if version != __version__:
            raise UsageError(
                f"the settings were made by tar2tf {version}, but this is {__version__}",
                hint="use an image with the version of the client",
            )
        _refuse_python(settings.spec, settings.sources)
        if sources is None:
            for path, source in settings.sources.items():
                receive_source(path, source.encode("utf-8", "surrogateescape"))
        elif not settings.sources.items() <= sources.items():
            raise UsageError("these settings call functions of somebody else")
        if wrong := [message for _, message in yaml_file.problems(settings.spec)]:
            raise UsageError(f"{ENVIRONMENT}: {'; '.join(wrong)}")
        cls.of(settings.conversion())
        return settings

    @classmethod
    def of_file(cls, spec: yaml_file.SpecFile) -> Settings:
        """Return the settings of a spec file, which need not have input and output.

        Raises:
            UsageError: when the file has problems.
            RemoteError: when a cluster cannot run such a conversion.
        """
        spec.check()
        output = {"path": _OUTPUT if spec.data.get("split") else "-"}
        return cls.of(yaml_file.build({**yaml_file.merge_specs({"input": _BUCKET}, spec.data), "output": output}))

    @property
    def of_samples(self) -> Settings:
        """Return the settings that determine samples after the ops; any transformer with them can send samples."""
        spec = {name: value for name, value in self.spec.items() if name not in _OF_FEATURES}
        return Settings(spec, sources=self.sources)

    @property
    def text(self) -> str:
        """Return the settings as JSON, which is equal for equal settings."""
        whole = {"version": __version__, "spec": self.spec, "keys": self.keys}
        whole |= {"sources": self.sources} if self.sources else {}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """Return sixteen hexadecimal digits that are equal for equal settings of one version."""
        return blake2b(self.text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        """Return the default name of the transformer."""
        return f"tar2tf-{self.digest}"

    def conversion(self) -> Conversion:
        """Return the conversion with which a transformer reads one input."""
        return yaml_file.build(yaml_file.merge_specs({"input": _BUCKET, "output": {"path": "-"}}, self.spec))


class AnswerEnd(TypedDict):
    """The content of an answer's end record.

    Keys:
        records: number of records.
        bytes: size of the framed records in bytes.
        crc32c: CRC-32C of these bytes.
        xxh64: their XXH64 in hexadecimal digits, if only the end record was requested.
        size: size of the input in bytes, as stored; None if that is not known.
        settings: digest of the settings of the transformer.
        report: the report of the input.
    """

    records: int
    bytes: int
    crc32c: int
    xxh64: NotRequired[str]
    size: int | None
    settings: str
    report: dict[str, object]


AnswerPart: TypeAlias = Literal["", "records", "end"]


@dataclass(frozen=True)
class AnswerRequest:
    """The options of one request to a transformer, sent as its `etl_args`.

    Attributes:
        first: whether the object is the conversion's first input: a typed feature that none of its samples has is a
            usage error.
        part: "records" for a file of records, which the cluster stores; "end" for the end record of such a file; by
            default both, one after the other.
        entries: names of the entries to send of each sample after the ops, empty for all; None to send records.
    """

    first: bool = False
    part: AnswerPart = ""
    entries: Sequence[str] | None = None

    @property
    def gives_samples(self) -> bool:
        """Whether the answer contains samples instead of records."""
        return self.entries is not None

    @classmethod
    def load(cls, text: str) -> AnswerRequest:
        """Parse the JSON of a request, ignoring options for other transformers."""
        try:
            asked = json.loads(text)["tar2tf"]
            return cls(bool(asked.get("first")), asked.get("part", ""), asked.get("entries"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    @property
    def text(self) -> str:
        """Return the request as JSON; empty if it has only defaults."""
        given = {name: value for name, value in asdict(self).items() if value not in (False, "", None)}
        return json.dumps({"tar2tf": given}, separators=(",", ":")) if given else ""


_MOST_SETTINGS: Final = 96 << 10
"""The largest size of settings in bytes, as Linux refuses a variable of 128 KiB."""


def _sources_of(conversion: Conversion) -> dict[str, str]:
    """Return the source files of the functions in a conversion's ops, by the paths that the user wrote.

    Raises:
        RemoteError: when the conversion calls other functions.
    """
    sources: dict[str, str] = {}
    for op in filter(runs_own_code, conversion.ops):
        file = op.file if isinstance(op, Func) else None
        if file is None:
            raise _refused()
        sources[file[0]] = file[1].decode("utf-8", "surrogateescape")
    if conversion.example_ops or conversion.record_to_example:
        raise _refused()
    return sources


def _refuse_python(spec: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Refuse an op `func` outside of given files before it is inspected, which would import it."""
    for op in spec.get("ops") or ():
        if isinstance(op, str) and op.partition(":")[0] == "func":
            raise _refused()
        if isinstance(op, dict) and "func" in op and str(op["func"]).rpartition(":")[0] not in sources:
            raise _refused()


def _refused() -> RemoteError:
    return RemoteError(
        "a cluster runs functions of a file only: func:FILE.py:NAME",
        hint="write the function into a file, or convert without --remote-exec",
    )


_KEY: Final = b"\0key "
_END: Final = b"\0end "
_ERROR: Final = b"\0err "
DONE: Final = b"".join(frame([b"\0done"], 5))
"""The last bytes of every complete stream."""

_MARK: Final = " tar2tf-error:"
_ARRAY: Final = "\0npy"
"""The suffix of the names of arrays; no name in a tar has a NUL."""
_WHOLE: Final = "\0whole "
_SCALED: Final = "\0scaled "
_WORTH_IT: Final = 1024  # minimum size in bytes of an array to send as uint8 if possible
_FEW: Final = 64  # number of values to try first
_CHUNK: Final = 1 << 20
_SOON: Final = 0.1  # maximum seconds of buffering while a reader waits


class StreamWriter:
    """Writes the answer for one input to a file.

    Args:
        file: the file, still empty.
        keys: whether the key of each sample is sent before its record.
        settings: the digest of the transformer's settings.
        soon: whether the file is read while it is written.
    """

    def __init__(self, file: RecordFile, *, keys: bool, settings: str, soon: bool = False) -> None:
        self._file = file
        self._keys = keys
        self._settings = settings
        self._soon = soon
        self._flushed = 0.0

    def add(self, key: str, parts: Iterable[bytes], size: int) -> None:
        """Append one framed record of `size` bytes."""
        if self._keys:
            data = _KEY + key.encode("utf-8", "surrogateescape")
            self._file.write(frame([data], len(data)), len(data) + FRAMING)
        self._file.write(parts, size)
        if self._soon and (now := time.monotonic()) - self._flushed > _SOON:
            self._file.flush()
            self._flushed = now

    def add_batch(self, batch: RecordBatch) -> None:
        """Append a batch of records; only if no keys are sent."""
        self._file.write([batch.data], len(batch.data))

    def finish(self, report: InputReport, size: int | None) -> AnswerEnd:
        """Append the end record, and return its content.

        Args:
            report: the report of the input.
            size: the size of the input in bytes, as stored.
        """
        self._file.flush()
        end: AnswerEnd = {
            "records": report.samples,
            "bytes": self._file.size,
            "crc32c": self._file.crc,
            "size": size,
            "settings": self._settings,
            "report": report.to_json(),
        }
        data = end_record(end)
        self._file.write([data], len(data))
        return end

    def fail(self, error: Tar2tfError) -> None:
        """Append an error that ends a partially sent stream."""
        data = _ERROR + text_of_error(error).encode("utf-8", "surrogateescape")
        self._file.write([*frame([data], len(data)), DONE], len(data) + FRAMING + len(DONE))


def end_record(end: AnswerEnd) -> bytes:
    """Return the end of a stream: an end record and its trailer."""
    data = _END + json.dumps(end).encode("ascii")
    return b"".join(frame([data], len(data))) + DONE


class StreamReader:
    """Reads a transformer's answer, and refuses one that is truncated, damaged or made with other settings.

    Records are passed on framed, and not parsed as by `RecordReader`: the CRC of the whole stream verifies them.

    Args:
        stream: the transformer's answer.
        name: the input's path or URL, in errors and in the report.
        settings: the digest of the settings that the transformer should have.

    Attributes:
        report: the transformer's report on the input; complete once all records were read.
        size: the size of the input in bytes, according to the transformer; None before all records were read.
    """

    def __init__(self, stream: Readable, name: str, settings: str) -> None:
        self._cursor = Cursor(stream, _CHUNK)
        self._name = name
        self._settings = settings
        self._crc = 0  # CRC of the bytes taken
        self.report = InputReport()
        self.size: int | None = None

    def records(self) -> Iterator[Record]:
        """Iterate over the framed record of each example; keys are empty unless they are sent.

        Large records are not held in memory. No record may be used before the last one was read.

        Raises:
            DamagedShardError: when the stream is incomplete or damaged.
            SourceError: when the stream comes from a transformer with other settings, or reading fails.
            Tar2tfError: the error of the input that ends the stream.
        """
        key, count, cursor = "", 0, self._cursor
        while True:
            length, before, crc = self._length(), cursor.offset, self._crc
            size = length + FRAMING
            if length and cursor.buffer[cursor.position + 12 : cursor.position + 13] == b"\0":
                control = self._checked(self._whole(size))  # an end record has all errors of an input, and may be large
                if control.startswith(_END):
                    self._end(control, before, crc, count)
                    return
                if control.startswith(_ERROR):
                    raise self._sent_error(control)
                if not control.startswith(_KEY):
                    raise self._damage("the cluster's answer has a record of an unknown kind", "damaged")
                key = control[len(_KEY) :].decode("utf-8", "surrogateescape")
                continue
            yield key, [self._whole(size)] if length <= _CHUNK else self._pieces(size), size, None
            count += 1

    def messages(self) -> Iterator[bytes]:
        """Iterate over the message of each example after checking its CRC, as it is used before the stream ends.

        Raises:
            DamagedShardError: when the stream is incomplete or damaged.
            SourceError: as from `records`.
            Tar2tfError: an error in the input that the transformer found after it had begun to respond.
        """
        for _, parts, *_ in self.records():
            yield self._checked(b"".join(parts))

    def end(self) -> AnswerEnd:
        """Read the end record of an answer that contains nothing else, and return its content.

        Raises:
            DamagedShardError: when the answer contains something else.
            SourceError: as from `records`.
        """
        control = self._checked(self._whole(self._length() + FRAMING))
        if not control.startswith(_END):
            raise self._damage("the cluster's answer is not an end record", "damaged")
        return self._accepted(control)

    def _length(self) -> int:
        """Return the length of the next record's data, and buffer the first byte of the data."""
        cursor = self._cursor
        if len(cursor.buffer) - cursor.position < 13 and cursor.fill(13) < 13:
            raise self._cut()
        try:
            return record_length(cursor.buffer[cursor.position : cursor.position + 12])
        except DamagedShardError as error:
            raise self._damage(error.message, error.kind) from None

    def _whole(self, size: int) -> bytes:
        framed = self._cursor.take(size)
        if len(framed) < size:
            raise self._cut()
        self._crc = crc32c(framed, self._crc)
        return framed

    def _pieces(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of a large record as they arrive."""
        for piece in self._cursor.pieces(size):
            self._crc = crc32c(piece, self._crc)
            size -= len(piece)
            yield piece
        if size:
            raise self._cut()

    def _checked(self, framed: bytes) -> bytes:
        try:
            return unframed(framed)
        except DamagedShardError as error:
            raise self._damage(error.message, error.kind) from None

    def _end(self, control: bytes, size: int, crc: int, count: int) -> None:
        """Compare the received records with the counts in the end record."""
        end = self._accepted(control)
        if (end["records"], end["bytes"]) != (count, size):
            sent = f"{end['records']:,} records in {end['bytes']:,} bytes"
            raise self._damage(f"the cluster sent {sent}, but {count:,} in {size:,} arrived", "truncated")
        if end["crc32c"] != crc:
            raise self._damage("the CRC of the cluster's answer does not match", "data_crc")
        if self._whole(len(DONE)) != DONE or self._cursor.fill(1):
            raise self._damage("the cluster's answer continues after its end record", "damaged")
        self.report, self.size = InputReport.from_json(end["report"]), end["size"]

    def _sent_error(self, control: bytes) -> Tar2tfError:
        """Return the error that a transformer sent as the end of a stream."""
        text = control[len(_ERROR) :].decode("utf-8", "surrogateescape")
        return error_of(text, self._name) or self._damage("the error in the cluster's answer is malformed", "damaged")

    def _accepted(self, control: bytes) -> AnswerEnd:
        """Return the content of an end record, after checking that the transformer has these settings."""
        try:
            end: AnswerEnd = json.loads(control[len(_END) :])
            settings = end["settings"]
        except (ValueError, KeyError, TypeError):
            raise self._damage("the end record of the cluster's answer is malformed", "damaged") from None
        if settings != self._settings:
            raise SourceError(
                "the cluster's transformer has other settings than this conversion",
                shard=self._name,
                hint="start one with: tar2tf etl init --spec SPEC",
            )
        report: dict[str, Any] = end["report"]
        for fault in report.get("errors", ()):
            fault["shard"] = self._name
        return end

    def _cut(self) -> DamagedShardError:
        return self._damage("the cluster's answer ends before its end record", "truncated")

    def _damage(self, message: str, kind: str) -> DamagedShardError:
        return DamagedShardError(f"{message} (byte {self._cursor.offset:,})", kind=kind, shard=self._name)


def text_of_error(error: Tar2tfError) -> str:
    """Return an error as text for a transformer's answer, readable for people and for `error_of`."""
    parts = {name: value for name, value in vars(error).items() if isinstance(value, (str, int))}
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == errors.__name__)
    return f"{error}{_MARK}{json.dumps({'error': kind, **parts})}"


def error_of(text: str, name: str) -> Tar2tfError | None:
    """Parse the error in a transformer's answer, which a cluster may have wrapped; None if it has none.

    Args:
        text: the body of the answer, or the cluster's error message that contains it.
        name: the input's path or URL.
    """
    shown, mark, rest = text.partition(_MARK)
    try:
        parts, _ = json.JSONDecoder().raw_decode(rest)
        message = parts["message"]
    except (ValueError, KeyError, TypeError):
        return SourceError(shown.strip(), shard=name) if mark else None
    kind = getattr(errors, parts.pop("error", ""), None)
    if not (isinstance(kind, type) and issubclass(kind, Tar2tfError)):
        kind = SourceError
    error: Tar2tfError = kind(message)
    vars(error).update(parts, shard=name)
    return error


def to_features(sample: Sample) -> dict[str, bytes]:
    """Convert a sample to features that `from_example` converts back."""
    key = sample[KEY].encode("utf-8", "surrogateescape")
    return dict(_feature(name, value) for name, value in {**sample, KEY: key}.items())


def _feature(name: str, value: object) -> tuple[str, bytes]:
    if isinstance(value, bytes):
        return name, value
    import numpy as np

    suffix, array = _as_uint8(np.asarray(value))
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return name + suffix, file.getvalue()


def _as_uint8(array: Array) -> tuple[str, Array]:
    """Return an equivalent smaller array to send, and the suffix that says how to restore the original."""
    import numpy as np

    from tar2tf_cli.formats.image import DTYPES

    if array.nbytes < _WORTH_IT or array.dtype.itemsize == 1 or array.dtype.name not in DTYPES:
        return _ARRAY, array
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    for suffix in (_WHOLE, _SCALED) if array.dtype.kind == "f" else (_WHOLE,):
        for part in (array.reshape(-1)[:_FEW], array):  # a few values rule out most arrays
            with np.errstate(invalid="ignore", over="ignore"):
                small = (part * 255 + 0.5 if suffix == _SCALED else part).astype(np.uint8)
            if not _bitwise_equal(_restored(suffix, array.dtype.name, small), part):
                break
        else:
            return suffix + array.dtype.name, small
    return _ARRAY, array


def _bitwise_equal(array: Array, other: Array) -> bool:
    """Whether two arrays of one dtype are bitwise equal, so that 0.0 and -0.0 differ."""
    bits = f"u{array.dtype.itemsize}"
    return bool((array.view(bits) == other.view(bits)).all())


def _restored(suffix: str, dtype: str, small: Array) -> Array:
    """Restore the array that `_as_uint8` made smaller, given its suffix."""
    from tar2tf_cli.formats.image import convert_dtype

    return convert_dtype(small, dtype) if suffix == _SCALED else small.astype(dtype)


def from_example(message: bytes) -> Sample:
    """Restore the sample from which `to_features` made an example.

    Raises:
        ValueError: when the example was not made by a transformer.
    """
    sample: Sample = {}
    for feature_name, feature in parse(message).items():
        (value,) = feature.parts()
        name, nul, form = feature_name.partition("\0")
        sample[name] = _array(nul + form, value) if nul else value
    sample[KEY] = sample[KEY].decode("utf-8", "surrogateescape")
    return sample


def _array(suffix: str, npy: bytes) -> Array:
    """Return the array in a feature whose name has an array's suffix."""
    array = read_array(npy)
    for form in (_WHOLE, _SCALED):
        if suffix.startswith(form):
            return _restored(form, suffix[len(form) :], array)
    return array
