"""A shard format: records of JSON, each after its length in four bytes; bytes are text in base 64."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from tar2tf_cli.api.objects import Readable
from tar2tf_cli.api.shard_format import FormatTraits, KernelForm, ShardFormat
from tar2tf_cli.api.values import Feature, Features, KeySplit, MessagePart, Sample
from tar2tf_cli.errors import DamagedShardError, Lost, SampleError
from tar2tf_cli.formats.example import values_of
from tar2tf_cli.formats.files import pieces_of

PREFIX = 4


class JsonEncoder:
    """Makes records of JSON."""

    framing: int = PREFIX
    kernel_form: KernelForm | None = None

    def encode(self, features: Features, /) -> tuple[list[MessagePart], int]:
        data = json.dumps({name: _as_json(features[name]) for name in sorted(features)}).encode()
        return [data], len(data)

    def frame(self, parts: Sequence[MessagePart], size: int, /) -> Iterable[bytes]:
        return [size.to_bytes(PREFIX, "little"), *(piece for part in parts for piece in pieces_of(part))]

    def measure(self, sizes: dict[str, int], key: bytes, /) -> int:
        """Return the length of the JSON of byte strings of these sizes."""
        sizes["__key__"] = len(key)
        names = sum(len(json.dumps(name)) + len(': {"b64": ""}, ') for name in sizes)
        return PREFIX + names + sum(-(-size // 3) * 4 for size in sizes.values())


def _as_json(value: object) -> Any:
    if isinstance(value, Feature):
        _, values = values_of(value)
        values = [_as_json(item) if isinstance(item, bytes) else item for item in values]
        return values[0] if value.shape == () else values
    return {"b64": base64.b64encode(b"".join(pieces_of(value))).decode()}


def _from_json(item: Any) -> Any:
    return base64.b64decode(item["b64"]) if isinstance(item, dict) else item


class JsonUnits:
    """Iterates over framed records; it cannot resume after damage."""

    def __init__(self, stream: Readable, name: str) -> None:
        self._stream = stream
        self._name = name
        self.offset = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while head := self._read(PREFIX):
            size = int.from_bytes(head, "little")
            data = self._read(size)
            if len(head) < PREFIX or len(data) < size:
                raise DamagedShardError("the shard ends inside a record", kind="truncated", offset=self.offset)
            begin, self.offset = self.offset, self.offset + PREFIX + size
            yield begin, head + data

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._stream.read(size - len(data))):
            data += more
        return data

    def resume(self, error: DamagedShardError) -> bool:
        error.lost = Lost(self.offset, None, 0)
        return False


class LengthPrefixedJson(ShardFormat):
    """Records of JSON after their lengths."""

    name = "ljson"
    traits: ClassVar[FormatTraits] = FormatTraits(
        plural="JSON record files", listed_as="*.ljson", suffixes=MappingProxyType({".ljson": "none"})
    )

    def recognizes(self, head: bytes, *, damaged: bool = False) -> bool:
        return not damaged and head[2:6] == b'\0\0{"'

    def is_named(self, name: str) -> bool:
        return name.endswith(".ljson")

    def encoder(self) -> JsonEncoder:
        return JsonEncoder()

    def index_lines(self, stream: Readable, name: str, key_split: KeySplit) -> Iterator[bytes]:
        for offset, unit in self.units(stream, name):
            yield b"%d %d\n" % (offset, len(unit))

    def units(self, stream: Readable, name: str) -> JsonUnits:
        return JsonUnits(stream, name)

    def sample(self, unit: bytes, name: str, key_split: KeySplit) -> Sample:
        try:
            record = json.loads(unit[PREFIX:])
        except ValueError as error:
            raise SampleError(f"the record is not JSON: {error}") from None
        return {name: _from_json(item) for name, item in record.items()}


FORMAT = LengthPrefixedJson()
