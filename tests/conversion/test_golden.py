"""The bytes that conversions of fixed inputs write: they stay the same from version to version, however they are made.

`golden.json` holds a SHA-256 for each conversion. A new one is added with `python tests/conversion/test_golden.py`; one
that is there changes only when the format of the output does.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from commands import tar2tf
from etl_cluster import EtlCluster
from input_buckets import MAKERS
from make_bytes import tar_of
from shards import samples, tree, write_tar
from tar2tf_cli.cli import main
from tar2tf_cli.cli.convert import conversion_of
from tar2tf_cli.cli.convert import convert as command
from tar2tf_cli.remote import transformers as transformers_module
from tar2tf_cli.remote.stream import Settings
from tar2tf_cli.remote.transformers import of_cluster

GOLDEN = Path(__file__).with_name("golden.json")

PLAIN = [(f"{key}.{name}", data) for key, entries in samples(300) for name, data in entries.items()]
ODD = [
    *PLAIN[:20],
    ("._0010.jpg", b"AppleDouble"),
    *PLAIN[20:40],
    ("0320.seg.png", b"two dots"),
    ("__meta__.json", b"{}"),
    ("0321.JPG", b"upper case"),
    ("deep/er/0022.txt", b""),
    ("deep/er/0022.bin", bytes(70_000)),
    ("d.o.t/0023.cls", b"23"),
    ("größe/日本.txt", "ü".encode()),
    ("x" * 96 + ".cls", b"100 bytes"),
    ("y" * 130 + ".cls", b"134 bytes"),
    ("no-extension", b"skipped"),
    *PLAIN[40:120],
]


def odd_shards(folder: Path) -> None:
    """Tars in each format, of members that are named and ordered oddly."""
    folder.mkdir()
    for number, form in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        short = [(name, data) for name, data in ODD if len(name) < 120 or form != tarfile.USTAR_FORMAT]
        data = tar_of(short, form, pax_headers={"comment": "global"} if number == 2 else None)
        (folder / f"odd-{number}.tar").write_bytes(data)
        (folder / f"odd-{number}.tar.gz").write_bytes(gzip.compress(data, 1, mtime=0))


def unsorted_shards(folder: Path) -> None:
    write_tar(folder / "a.tar", [(str(number), entries) for number, (_, entries) in enumerate(samples(120))])
    write_tar(folder / "b.tar", samples(3000, 1000, first=500))


def scattered_shards(folder: Path) -> None:
    """Members that are not adjacent, and two archives end to end."""
    folder.mkdir()
    (folder / "a.tar").write_bytes(tar_of(sorted(PLAIN[:200], key=lambda file: file[0][5:]), tarfile.USTAR_FORMAT))
    (folder / "b.tar").write_bytes(tar_of(PLAIN[200:300], end=b"") + bytes(1024) + tar_of(PLAIN[300:]))


def faulty_shards(folder: Path) -> None:
    """Members that appear twice, keys that come back, a damaged header, a cut."""
    folder.mkdir()
    twice = [*PLAIN[:50], PLAIN[49], *PLAIN[50:100], PLAIN[0], *PLAIN[100:130]]
    (folder / "a.tar").write_bytes(tar_of(twice, tarfile.USTAR_FORMAT))
    whole = bytearray(tar_of(PLAIN, tarfile.USTAR_FORMAT))
    whole[1024 * 100 + 3] ^= 1
    whole[1024 * 301] ^= 1
    (folder / "b.tar").write_bytes(whole[:-3000])
    (folder / "c.tar").write_bytes(tar_of([*PLAIN[:100], ("0050.jpg", b"no cls")], tarfile.USTAR_FORMAT))


BUCKETS = {
    **MAKERS,
    "odd": odd_shards,
    "unsorted": unsorted_shards,
    "scattered": scattered_shards,
    "faulty": faulty_shards,
}
SKIP = ["--on-error", "skip", "--no-regroup"]
LAYOUTS: dict[str, list[str]] = {
    "one file": ["all.record"],
    "max-shard-size": ["train-<>.record", "--max-shard-size", "20kB"],
    "records-per-shard": ["train-<00>.record", "--records-per-shard", "9", "--index"],
    "shuffle": ["train-<>.record", "--shuffle", "--num-shards", "3"],
    "split": ["<split>-<>.record", "--split", "a=0.6,b=0.4"],
    "limit": ["train-<>.record", "--limit", "83"],
    "last": ["train-<>.record", "--key-split", "last", "--max-shard-size", "50kB"],
    "gzip": ["all.record.gz", "--compression", "gzip"],
    "types": ["all.record", "--type", "cls=int64"],
    "select": ["all.record", "--select", "image=jpg,label=cls", "--type", "label=int64"],
    "rename": ["all.record", "--op", "rename:image=jpg,png", "--op", "keep:image"],
    "skip": ["train-<>.record", *SKIP],
    "skip, last": ["train-<>.record", "--key-split", "last", "--errors", "errors.jsonl", *SKIP],
    "webdataset": ["all.record", "--preset", "webdataset"],
    "image-label": ["all.record", "--preset", "image-label"],
    "decode": ["all.record", "--op", "decode:jpg", "--op", "center_crop:jpg"],
    "input": ["<input>.record"],
}
TARS: dict[str, list[str]] = {
    "tar": ["train-<>.tar", "--max-shard-size", "40kB"],
    "tar.gz": ["train-<>.tar.gz", "--max-shard-size", "20kB"],
    "tar, last": ["<input>.tar", "--key-split", "last"],
    "tar of arrays": ["all.tar", "--op", "decode:jpg"],
    "tar, skip": ["all.tar", *SKIP],
}
"""Those with shards that no cluster makes."""

ANY = ("one file", "max-shard-size", "records-per-shard", "shuffle", "split", "limit", "last", "skip")
CASES = [
    *[(bucket, layout) for bucket in ("small", "mixed", "unsorted", "odd") for layout in ANY],
    *[("small", layout) for layout in ("gzip", "types", "select", "rename", "input")],
    *[("large", layout) for layout in ("one file", "max-shard-size", "limit", "types")],
    *[("photos", layout) for layout in ("one file", "webdataset", "image-label", "decode")],
    *[("scattered", layout) for layout in ("one file", "limit", "skip")],
    *[("faulty", layout) for layout in ("one file", "skip", "skip, last")],
]
TAR_CASES = [
    *[(bucket, layout) for bucket in ("small", "mixed", "large") for layout in ("tar", "tar.gz")],
    *[("odd", "tar, last"), ("scattered", "tar"), ("photos", "tar of arrays"), ("faulty", "tar, skip")],
]


WHAT_IS_THERE = {"spec", "inputs", "shards", "features", "totals", "skipped", "documents"}
"""The keys of a manifest that say what is there, however it is laid out."""


def plain(name: str, data: bytes) -> bytes:
    """A file's bytes without what is not the same everywhere: folders, times, wording, and the version of zlib."""
    if name.endswith(".gz"):
        return gzip.decompress(data)
    if name == "errors.jsonl":
        errors = [json.loads(line) for line in data.splitlines()]
        return json.dumps([[error[name] for name in ("key", "member", "offset")] for error in errors]).encode()
    if not name.endswith("manifest.json"):
        return data
    manifest: dict[str, Any] = json.loads(data)
    del manifest["spec"]["input"]["bucket"]
    manifest["skipped"].pop("lost", None)
    manifest["inputs"] = [item["name"] for item in manifest["inputs"]]
    if "compression" in manifest["spec"]["output"]:
        manifest["shards"] = [{"records": shard["records"]} for shard in manifest["shards"]]
    return json.dumps({name: value for name, value in sorted(manifest.items()) if name in WHAT_IS_THERE}).encode()


def arguments(bucket: Path, layout: str, out: Path, workers: int) -> list[str]:
    path, *options = {**LAYOUTS, **TARS}[layout]
    options = [str(out / "errors.jsonl") if option == "errors.jsonl" else option for option in options]
    return ["convert", str(bucket), "-o", str(out / path), "-j", str(workers), "-q", *options]


def digest(out: Path, code: int) -> str:
    """The digest of the files that a conversion has written, without leading underscores, and of its exit code."""
    found = sha256(str(code).encode())
    files = {re.sub(r"(^|/)_", r"\1", name): data for name, data in tree(out).items()}
    for name, data in sorted(files.items()) if code < 3 else ():
        found.update(f"\n{name} {sha256(plain(name, data)).hexdigest()}".encode())
    return found.hexdigest()


@pytest.fixture(scope="session")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("golden")

    def made(name: str) -> Path:
        if not (root / name).exists():
            BUCKETS[name](root / name)
        return root / name

    return made


@pytest.fixture(scope="session")
def golden() -> dict[str, str]:
    return dict(json.loads(GOLDEN.read_text()))


@pytest.mark.parametrize(("bucket", "layout"), [*CASES, *TAR_CASES])
def test_conversions_write_the_same_bytes_as_ever(
    bucket: str, layout: str, buckets: Callable[[str], Path], golden: dict[str, str], tmp_path: Path
) -> None:
    for workers in (1, 2):
        out = tmp_path / str(workers)
        out.mkdir()
        done = tar2tf(*arguments(buckets(bucket), layout, out, workers), env={"TAR2TF_PURE": "1"})
        assert digest(out, done.returncode) == golden[f"{bucket}: {layout}"]


@pytest.mark.parametrize(("bucket", "layout"), [*CASES, *TAR_CASES])
@pytest.mark.usefixtures("with_kernel")
def test_conversions_with_the_kernel_write_the_same_bytes(
    bucket: str, layout: str, buckets: Callable[[str], Path], golden: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments(buckets(bucket), layout, tmp_path, 1))
    assert isinstance(ended.value.code, int)
    assert digest(tmp_path, ended.value.code) == golden[f"{bucket}: {layout}"]


def settings_of(layout: str) -> Settings:
    """What a transformer for the conversions of a layout does."""
    return Settings.of(conversion_of(command.make_context("convert", ["ais://any", "-o", *LAYOUTS[layout]])))


@pytest.fixture(scope="module")
def transformers(etl_cluster: EtlCluster) -> Iterator[dict[str, Settings]]:
    """The settings of the transformers for all layouts, which are made at once, by name."""
    made = {settings.name: settings for settings in map(settings_of, LAYOUTS)}
    with etl_cluster.network(), ThreadPoolExecutor(len(made)) as pool:
        cluster = of_cluster(etl_cluster.endpoint)
        list(
            pool.map(
                lambda each: cluster.make_anew(transformers_module.message(each, init_seconds=60, seconds=60)),
                made.values(),
            )
        )
    yield made
    with etl_cluster.network(), ThreadPoolExecutor(len(made)) as pool:
        list(pool.map(lambda name: cluster.ask(lambda: cluster.delete(name)), made))


@pytest.fixture(scope="module")
def stored(etl_cluster: EtlCluster, buckets: Callable[[str], Path]) -> Callable[[str], str]:
    """The URL of a bucket of the cluster with the shards of a folder."""
    made: set[str] = set()

    def url(name: str) -> str:
        if name not in made:
            shards = {path.name: path.read_bytes() for path in buckets(name).iterdir()}
            etl_cluster.bucket(f"golden-{name}", shards)
            made.add(name)
        return f"ais://golden-{name}"

    return url


SHARDED_HERE = {"max-shard-size", "records-per-shard", "shuffle"}
"""Layouts with the transformer of "one file": what is done with records once they are here, one bucket shows."""


@pytest.mark.xdist_group("transformers")
@pytest.mark.parametrize(
    ("bucket", "layout"), [case for case in CASES if case[0] == "mixed" or case[1] not in SHARDED_HERE]
)
@pytest.mark.usefixtures("transformers")
def test_conversions_in_a_cluster_write_the_same_bytes(
    bucket: str,
    layout: str,
    etl: EtlCluster,
    stored: Callable[[str], str],
    golden: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = arguments(tmp_path, layout, tmp_path, 1)
    words[1] = stored(bucket)
    with pytest.raises(SystemExit) as ended:
        main([*(word for word in words if word != "-q"), "--endpoint", etl.endpoint])
    assert f"with its transformer {settings_of(layout).name}" in capsys.readouterr().err
    assert isinstance(ended.value.code, int)
    assert digest(tmp_path, ended.value.code) == golden[f"{bucket}: {layout}"]


if __name__ == "__main__":
    import tempfile

    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    with tempfile.TemporaryDirectory() as root:
        for number, (bucket, layout) in enumerate([*CASES, *TAR_CASES]):
            if not Path(root, bucket).exists():
                BUCKETS[bucket](Path(root, bucket))
            out = Path(root, str(number))
            out.mkdir()
            done = tar2tf(*arguments(Path(root, bucket), layout, out, 1), env={"TAR2TF_PURE": "1"})
            known.setdefault(f"{bucket}: {layout}", digest(out, done.returncode))
    GOLDEN.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
