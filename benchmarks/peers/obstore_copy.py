"""Copies between a bucket of S3 and a folder with obstore alone, in eight threads.

python obstore_copy.py fetch|upload|list BUCKET FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from obstore.store import S3Store


def fetch(store: S3Store, folder: Path, name: str) -> None:
    with (folder / name).open("wb") as file:
        for piece in store.get(name).stream(1 << 20):
            file.write(piece)


def upload(store: S3Store, folder: Path, name: str) -> None:
    store.put(name, folder / name)


def main(what: str, bucket: str, folder: Path) -> None:
    config = {"endpoint": os.environ["AWS_ENDPOINT_URL"]}
    store = S3Store(bucket, config=config, client_options={"allow_http": True, "timeout": "600s"})
    if what == "list":
        print(json.dumps({"records": sum(map(len, store.list()))}))
        return
    folder.mkdir(parents=True, exist_ok=True)
    names = os.listdir(folder) if what == "upload" else [meta["path"] for page in store.list() for meta in page]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: {"fetch": fetch, "upload": upload}[what](store, folder, name), names))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
