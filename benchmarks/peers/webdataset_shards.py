"""The straightforward script of a WebDataset user who wants other shards: its reader and its ShardWriter.

python webdataset_shards.py OUT TAR...
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import webdataset


def main(out: str, *sources: str) -> None:
    begin = time.perf_counter()
    records = 0
    with webdataset.ShardWriter(str(Path(out, "new-%06d.tar")), maxsize=256 << 20, verbose=0) as writer:
        for sample in webdataset.WebDataset(list(sources), shardshuffle=False):
            writer.write({name: data for name, data in sample.items() if name not in ("__url__", "__local_path__")})
            records += 1
    print(json.dumps({"records": records, "seconds": time.perf_counter() - begin}))


main(*sys.argv[1:])
