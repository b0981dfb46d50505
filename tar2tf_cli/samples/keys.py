"""Keys of samples: splits member names into key and extension, and finds repeated keys."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tar2tf_cli.api.values import KEY, Batch, KeySplit, Sample
from tar2tf_cli.formats.example import ParsedFeature
from tar2tf_cli.structs import new_counter


def key_of(item: Mapping[str, object]) -> str | None:
    """Return the key of a sample or example; None if it has none.

    A whole number is a valid key; a list or a fraction is not.
    """
    key: Any = item.get(KEY)
    if isinstance(key, ParsedFeature):
        key = key.value() if key.count == 1 else None
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    if hasattr(key, "__index__") and not getattr(key, "shape", ()):
        return str(int(key))
    return key if isinstance(key, str) else None


def is_utf8(sample: Mapping[str, Any]) -> bool:
    """Whether the key of a sample and the names of its entries can be encoded as UTF-8."""
    try:
        "".join((sample[KEY], *map(str, sample))).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def split_name(name: str, rule: KeySplit) -> tuple[str, str]:
    """Split a name into key and extension; both are empty if there is no dot, or nothing before or after it.

    `first` splits at the first dot of the base name, as WebDataset does, and lower-cases the extension as it does;
    `last` splits at the last dot, as the AIS tar2tf client and go-tfdata do, and keeps the case.
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base) if rule == "first" else name.rfind(".", base)
    if dot <= base or dot == len(name) - 1:
        return "", ""
    extension = name[dot + 1 :]
    return name[:dot], extension.lower() if rule == "first" else extension


def unwanted(name: str) -> str | None:
    """Return why a member is not part of a sample: it is an AppleDouble file, or metadata of WebDataset."""
    base = name[name.rfind("/") + 1 :]
    if base.startswith("._"):
        return "AppleDouble (._*)"
    if "__meta__" in name.split("/") or base.startswith("__meta__"):
        return "__meta__"
    return None


class NameSplitter:
    """Splits the names of a shard's members into key and extension, and detects names on which the two rules differ.

    Args:
        rule: the dot at which a name is split, as for `split_name`.

    Attributes:
        rule: the dot at which a name is split.
        skipped: number of members that belong to no sample, by reason.
        differs: the first member that the other rule would name differently.
        matters: this member, unless an entry of its sample has a name on which both rules agree: `1.mask.png` belongs
            to the sample of `1.jpg`, but `1.a.jpg` and `1.b.jpg` may be two samples.
        unsettled: the key of the sample that decides whether it matters, until that sample is complete.
        extensions: the extensions without dots seen so far, on which both rules agree; each is mapped to itself.
    """

    def __init__(self, rule: KeySplit) -> None:
        self.rule: KeySplit = rule
        self.skipped: Counter[str] = new_counter()
        self.differs: str | None = None
        self.matters: str | None = None
        self.unsettled: str | None = None
        self.extensions: dict[str, str] = {}

    def split(self, name: str) -> tuple[str, str]:
        """Return key and extension of a member; both are empty, and the member counted, if it is not an entry of a
        sample.
        """
        if ("._" in name or "__meta__" in name) and (reason := unwanted(name)):
            self.skipped[reason] += 1
            return "", ""
        key, extension = split_name(name, self.rule)
        if not key:
            self.skipped["no extension"] += 1
        elif "." in extension or "." in key[key.rfind("/") + 1 :]:
            if self.differs is None:
                self.differs = self.matters = name
                self.unsettled = key
        elif name.endswith(extension):
            self.extensions[extension] = extension
        return key, extension

    def settle(self, sample: Sample) -> None:
        """Decide, from the complete sample of the first member that the other rule splits differently, whether that
        matters.
        """
        self.unsettled = None
        if any("." not in name for name in sample if name != KEY):
            self.matters = None

    def key_of(self, member: str | None) -> str:
        """Return the key of the sample that a member belongs to; empty if it belongs to none."""
        return split_name(member, self.rule)[0] if member and not unwanted(member) else ""

    def wants(self, name: str) -> bool:
        """Whether a member of this name is an entry of a sample."""
        return bool(self.key_of(name))


class SeenKeys:
    """Set of the keys seen in a shard, stored as 64-bit hashes: eight bytes per key if keys come in sorted order."""

    def __init__(self) -> None:
        self._last = ""
        self._hashes = array("q")
        self._set: set[int] | None = None

    def add(self, key: str) -> bool:
        """Add a key; return False if the set had it already."""
        number = hash(key)
        if self._set is not None:
            if number in self._set:
                return False
            self._set.add(number)
        elif key > self._last:
            self._last = key
            self._hashes.append(number)
        else:
            self._all()
            return self.add(key)
        return True

    def __contains__(self, key: str) -> bool:
        if self._set is None and key > self._last:
            return False
        return hash(key) in self._all()

    def _all(self) -> set[int]:
        if self._set is None:
            self._set = set(self._hashes)
            del self._hashes[:]
        return self._set

    def add_all(self, batch: Batch) -> bool:
        """Add the keys of a batch; return False, and add none, if the set had one of them already."""
        if self._set is None and batch.ascending and batch.first > self._last:
            self._last = batch.last
            self._hashes.frombytes(batch.py_hashes)
            return True
        hashes, known = array("q", batch.py_hashes).tolist(), self._all()
        if not known.isdisjoint(hashes):
            return False
        before = len(known)
        known.update(hashes)
        if len(known) < before + len(hashes):
            known.difference_update(hashes)
            return False
        return True
