"""The bare loop of whoever divides files into many: it opens, writes and flushes each, and looks at no record.

python divide_files.py OUT NUMBER FILE...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PIECE = 1 << 18


def main(out: str, number: str, *sources: str) -> None:
    each = int(number) // len(sources)
    for place, source in enumerate(sources):
        size = os.path.getsize(source)
        with open(source, "rb", buffering=0) as file:
            for part in range(each):
                left = size * (part + 1) // each - size * part // each
                with open(Path(out, f"new-{place * each + part:05}.record"), "wb", buffering=0) as shard:
                    while left:
                        left -= shard.write(file.read(min(left, PIECE))) or 0
                    os.fsync(shard.fileno())


main(*sys.argv[1:])
