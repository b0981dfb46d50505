"""Converts features to entries of a tar, with names and bytes from which readers get the same features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tar2tf_cli.api.values import KEY, Feature, Features, KeySplit, StoredValue
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.example import values_of
from tar2tf_cli.formats.files import whole
from tar2tf_cli.formats.npy import to_npy
from tar2tf_cli.samples.keys import key_of, split_name, unwanted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RENAME: Final = "give it another name with --select NEW=OLD or --op rename:NEW=OLD"
_GIVE_KEY: Final = "give it another key in a function of yours, with --op func:FILE.py:NAME"
_SPLIT_LAST: Final = "with --key-split last, names are split at the last dot instead"


def as_entries(features: Features, key: str, rule: KeySplit) -> dict[str, bytes | StoredValue]:
    """Return the contents of a sample's members by name, with the key as bytes.

    Bytes stay unchanged, a number becomes text unless its name says npy, and an array becomes an npy file, which
    includes the shape, in an entry `NAME.npy`. A feature NAME/shape that is not the shape of the array NAME becomes the
    entry `NAME.shape`, as a member cannot be named `NAME/shape`.

    Args:
        features: the features of the sample.
        key: its key.
        rule: the dot at which readers split the names of members.

    Raises:
        SampleError: for a feature or key that cannot be part of a member's name, and for several byte strings.
    """
    entries: dict[str, bytes | StoredValue] = {KEY: key.encode("utf-8", "surrogateescape")}
    for name, value in features.items():
        if name == KEY or _is_own_shape(name, features):
            continue
        data, shaped = value, f"{name}/shape" in features
        if name.endswith("/shape") and name.removesuffix("/shape") in features:
            name = f"{name.removesuffix('/shape')}.shape"
        if isinstance(data, Feature):
            name, data = _entry(name, data, shaped=shaped)
        check_name(key, name, rule)
        if name in entries:
            raise SampleError(f"has two entries that a tar would name {name!r}", hint=_RENAME)
        entries[name] = data
    return entries


def _entry(name: str, feature: Feature, *, shaped: bool) -> tuple[str, bytes]:
    """Return the name and the bytes of the entry that a feature becomes."""
    is_npy = name.rpartition(".")[2] == "npy"
    value = _value(name, feature, as_array=shaped or is_npy)
    if isinstance(value, bytes):
        return name, value
    return name if is_npy else f"{name}.npy", to_npy(value)


def _is_own_shape(name: str, features: Features) -> bool:
    """Whether a feature NAME/shape only repeats the shape stored with the array NAME."""
    array = features.get(name.removesuffix("/shape")) if name.endswith("/shape") else None
    stored = features[name]
    if not isinstance(array, Feature) or not isinstance(stored, Feature):
        return False
    return tuple(values_of(stored)[1]) == array.shape


def selected_key(features: Features, own: str | None = None) -> str | None:
    """Return the sample key among features, without white space around it; None if there is none.

    Args:
        features: the features.
        own: the key of the sample, which is returned unchanged if the features repeat it.

    Raises:
        SampleError: when the key is not one text or whole number.
    """
    if KEY not in features:
        return None
    value = features[KEY]
    if isinstance(value, Feature):
        _, values = values_of(value)
        value = values[0] if len(values) == 1 else value
    key = key_of({KEY: whole(value)})
    if key is None:
        raise SampleError(f"the feature {KEY!r} is not one text or whole number, so it cannot be the key")
    return key if key == own else key.strip()


def _value(name: str, feature: Feature, *, as_array: bool) -> bytes | NDArray[np.generic]:
    """Return the single byte string of a feature, the text of its single number unless `as_array`, or its array."""
    kind, values = values_of(feature)
    if kind == "bytes" and feature.encoding != "raw":
        if len(values) != 1:
            message = f"the feature {name!r} holds {len(values)} byte strings, but a member of a tar holds one"
            raise SampleError(message, hint="select one of them, or leave the feature out with --select")
        return bytes(values[0])
    if feature.shape == () and not as_array and feature.encoding != "raw":
        return _text(values[0])
    import numpy as np

    if feature.encoding == "raw":
        return np.frombuffer(values[0], np.dtype(feature.dtype).newbyteorder("<")).reshape(feature.shape)
    return np.array(values, feature.dtype).reshape(feature.shape)


def _text(value: int | float) -> bytes:
    """Return the shortest text that is parsed to the same number in an example."""
    if isinstance(value, int):
        return b"%d" % value
    import numpy as np

    return str(np.float32(value)).encode()


def check_name(key: str, name: str, rule: KeySplit) -> None:
    """Raise an error if a reader would split the member's name into another key and entry."""
    member = f"{key}.{name}"
    if split_name(member, rule) == (key, name) and not unwanted(member) and "\0" not in member:
        return
    base = key[key.rfind("/") + 1 :]
    if not base or "\0" in key or unwanted(f"{key}.a"):
        raise SampleError(f"has the key {key!r}, which cannot be the name of a member of a tar", hint=_GIVE_KEY)
    if rule == "first" and "." in base:
        other = split_name(member, rule)[0]
        message = f"has a dot in the key {key!r}, so readers of the tar would read it as the sample {other!r}"
        raise SampleError(message, hint=f"{_GIVE_KEY}; {_SPLIT_LAST}")
    read = split_name(member, rule)[1]
    problem = f"would read {read!r} as its name" if read else "would not find it"
    hint = f"{_RENAME}; {_SPLIT_LAST}" if rule == "first" and read and read == name.lower() else _RENAME
    raise SampleError(f"the feature {name!r} cannot be named in a tar: readers {problem}", hint=hint)
