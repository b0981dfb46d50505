"""Selection of the shards for `verify --subset`: a part by hash, or a window that moves on each day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from typing import Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.errors import UsageError
from tar2tf_cli.formats.checksums import key_hash
from tar2tf_cli.structs import NamedTuple

_PART: Final = re.compile(r"(\d{1,9})/(\d{1,9})")
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)%")


class Subset(NamedTuple):
    """The size of the part of the shards to read.

    Attributes:
        text: the text given by the user.
        part: the number of the part, from 1, if shards are divided into a number of parts; otherwise 0.
        parts: the number of parts.
        share: the share of the bytes, if it was given as a percentage.
        bytes: the number of bytes, if it was given as a size.
    """

    text: str
    part: int = 0
    parts: int = 0
    share: float = 0.0
    bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> Subset:
        """Parse `3/30`, `5%` or `10GB`.

        Raises:
            UsageError: when the text is anything else.
        """
        if match := _PART.fullmatch(text):
            part, parts = int(match[1]), int(match[2])
            if 0 < part <= parts:
                return cls(text, part, parts)
        elif match := _PERCENT.fullmatch(text):
            if 0 < float(match[1]) <= 100:
                return cls(text, share=float(match[1]) / 100)
        else:
            from tar2tf_cli.spec.fields import size

            with suppress(UsageError):
                return cls(text, bytes=size(text, "--subset"))
        hint = "3/30 is the third of thirty parts, 5% and 10GB select another part each day"
        raise UsageError(f"--subset must be a part, a percentage or a size, not {text!r}", hint=hint)

    def choose(self, items: Sequence[ObjectInfo], day: int | None = None) -> list[bool]:
        """Return whether to read each shard.

        A hash of its name assigns each shard to a part, so that a new shard does not move others. A percentage or a
        size is a window over the shards in the order of that hash, which advances each day.

        Args:
            items: the shards.
            day: the number of the day; None for today.
        """
        hashes = [key_hash(item.name) for item in items]
        if self.parts:
            return [number % self.parts == self.part - 1 for number in hashes]
        sizes = [item.size or 1 for item in items]
        total = sum(sizes)
        window = self.bytes or total * self.share
        begin = (date.today().toordinal() if day is None else day) * window % max(total, 1)
        chosen, end = [False] * len(items), 0
        for place in sorted(range(len(items)), key=hashes.__getitem__):
            start, end = end, end + sizes[place]
            # a shard partly in a window is read on the first day whose window reaches it
            chosen[place] = any(begin <= start + turn < begin + window for turn in (0, total))
        return chosen
