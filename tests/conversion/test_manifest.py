"""A damaged manifest: every command says which key is wrong, and none fails in any other way."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shards import PHOTOS
from tar2tf_cli import load_dataset
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from verify_runs import Ran, edit, manifest_of

VALUES = [None, True, -1, 0, 3, 1.5, 1e400, 10**30, "", "x", "a\0b", "\ud800", "../x", [], {}, [[]], [None], {"a": {}}]
VALUES += ["bytes", "int64", "float", "raw", "uint8", "float64", [2], [2, 2], [None, None], ["x"]]
"""What is put in the place of each value of a manifest."""

Keys = tuple[str | int, ...]


@pytest.fixture
def out(converted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(converted, tmp_path / "out"))


def keys_of(value: Any, above: Keys = ()) -> Iterator[Keys]:
    """The keys of every value in a document, from the outside in."""
    yield above
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from keys_of(item, (*above, key))


def mutations(data: bytes) -> list[bytes]:
    """The document cut at some bytes, and with each of its values replaced, removed or given twice."""
    found = [data[:size] for size in range(0, len(data), 97)] + [data + b"}", b"[" * 100_000, b"\xff" + data]
    for keys in keys_of(json.loads(data)):
        for value in [*VALUES, "remove", "twice"]:
            document = json.loads(data)
            if not keys:
                document = value
            else:
                place = document
                for key in keys[:-1]:
                    place = place[key]
                if value == "remove":
                    del place[keys[-1]]
                elif value == "twice":
                    place[keys[-1]] = [place[keys[-1]]] * 2
                else:
                    place[keys[-1]] = value
            found.append(json.dumps(document).encode())
    return found


def reconvert(manifest: Path) -> object:
    """Run the conversion again that wrote a manifest."""
    output = Output(str(manifest.parent / "photos-<>.record"), records_per_shard=6)
    return convert(Conversion(Input(str(PHOTOS)), output, types={"cls": "int64"}), workers=1)


USES: dict[str, Callable[[Path], object]] = {
    "convert": reconvert,
    "verify": lambda manifest: verify(str(manifest), workers=1),
    "load_dataset": load_dataset,
}


@pytest.mark.parametrize("use", USES)
def test_a_damaged_manifest_is_an_error_that_names_it_or_does_no_harm(use: str, out: Path) -> None:
    manifest = manifest_of(out)
    data = manifest.read_bytes()
    shards = {path: path.read_bytes() for path in out.glob("*.record")}
    for mutated in random.Random(use).sample(mutations(data), 40 if use == "load_dataset" else 120):
        manifest.write_bytes(mutated)
        with contextlib.suppress(Tar2tfError):
            USES[use](manifest)
        assert {path: path.read_bytes() for path in out.glob("*.record")} == shards


def put(*keys: str | int, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(whole: dict[str, Any]) -> None:
        place: Any = whole
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("shards", 1, "records", value="6"), "shards[1].records must be a whole number, 0 or more, not '6'"),
        (put("shards", 1, "records", value=-1), "shards[1].records must be a whole number, 0 or more, not -1"),
        (put("shards", 0, "bytes", value=2**63), f"shards[0].bytes must be a whole number, 0 or more, not {2**63}"),
        (put("shards", 0, "digest", value="crc32c:xyz"), "shards[0].digest must be crc32c: and eight hexadecimal"),
        (put("inputs", 2, "name", value=None), "inputs[2].name must be text, not None"),
        (put("features", "cls", "shape", value=["a"]), "features.cls.shape[0] must be a whole number"),
        (put("features", "cls", "encoding", value="text"), "features.cls.encoding must be one of bytes, int64"),
        (put("features", "cls", value=1), "features.cls must be an object, not 1"),
        (lambda whole: whole["spec"].pop("output"), "spec.output is missing"),
        (put("spec", "output", "path", value="//x"), "spec.output.path must be a path below the manifest's folder"),
        (put("shards", 0, "path", value="a/../../x"), "shards[0].path must be a path below the manifest's folder"),
        (put("documents", value=["/etc/x"]), "documents[0] must be a path below the manifest's folder, not '/etc/x'"),
        (lambda whole: whole.pop("skipped"), "skipped is missing"),
        (put("version", value=2), "is a manifest of version 2, but this tar2tf reads version 1"),
    ],
)
@pytest.mark.parametrize("use", USES)
def test_what_is_wrong_is_named_with_its_key(
    use: str, change: Callable[[dict[str, Any]], object], words: str, out: Path
) -> None:
    with pytest.raises(Tar2tfError) as caught:
        USES[use](edit(manifest_of(out), change))
    assert words in caught.value.message
    assert caught.value.shard == str(manifest_of(out))
    assert caught.value.hint


def test_a_damaged_manifest_is_replaced_only_when_asked(out: Path) -> None:
    before = manifest_of(out).read_bytes()
    edit(manifest_of(out), put("shards", value=3))
    spec = Conversion(
        Input(str(PHOTOS)), Output(str(out / "photos-<>.record"), records_per_shard=6), types={"cls": "int64"}
    )
    with pytest.raises(Tar2tfError, match=r"shards must be a list, not 3; pass overwrite=True"):
        convert(spec, workers=1)
    convert(spec, workers=1, overwrite=True)
    assert manifest_of(out).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("features", "cls", "dtype", value="float32"), "'cls' is a list of int64, which cannot hold float32"),
        (put("features", "cls", "dtype", value="bytes"), "'cls' is a list of int64, which cannot hold bytes"),
        (put("features", "jpg", "dtype", value="uint8"), "'jpg' is a list of bytes, which cannot hold uint8"),
        (put("features", "jpg", "shape", value=[2]), "'jpg' has 1 values, but 2 in the manifest"),
    ],
)
def test_verify_finds_a_dtype_or_shape_that_the_shards_do_not_have(
    change: Callable[[dict[str, Any]], object], words: str, out: Path, run: Callable[..., Ran]
) -> None:
    ran = run(edit(manifest_of(out), change))
    assert ran.code == 1
    assert words in ran.out, ran.out


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays whose shapes are stored beside them, and an image whose height, width and channels are."""
    folder = tmp_path_factory.mktemp("arrays")
    spec: dict[str, Any] = {
        "raw": {"ops": ["decode:jpg", "resize:jpg,20x30", "cast:jpg,uint8"], "select": "jpg"},
        "float": {"ops": ["decode:jpg", "resize:jpg,4x6"], "select": "jpg"},
        "ragged": {"ops": ["decode:jpg"], "select": "jpg"},
        "image": {"preset": "imagenet-tensor", "image_size": 8},
    }
    for name, options in spec.items():
        convert(Conversion(Input(str(PHOTOS)), Output(str(folder / f"{name}-<>.record")), **options), workers=1)
    return folder


@pytest.mark.parametrize(
    ("name", "feature", "shape"),
    [
        ("raw", "jpg", [30, 20, 3]),
        ("raw", "jpg", [20, 90]),
        ("float", "jpg", [6, 4, 3]),
        ("float", "jpg", [6, None, 3]),
        ("ragged", "jpg", [None, None, 4]),
        ("ragged", "jpg", [None, None]),
        ("image", "image/encoded", [8, 24]),
        ("image", "image/encoded", [4, 16, 3]),
    ],
)
def test_verify_finds_a_shape_of_equal_size(
    name: str, feature: str, shape: list[int | None], arrays: Path, run: Callable[..., Ran]
) -> None:
    manifest = arrays / f"_{name}-manifest.json"
    assert run(manifest).code == 0
    data = manifest.read_bytes()
    try:
        ran = run(edit(manifest, put("features", feature, "shape", value=shape)))
    finally:
        manifest.write_bytes(data)
    assert ran.code == 1
    assert "(schema)" in ran.out
    assert (feature.rpartition("/")[0] or feature) in ran.out


def test_the_summary_has_the_bytes_of_all_shards(tmp_path: Path) -> None:
    made = convert(Conversion(Input(PHOTOS), Output(tmp_path / "x-<>.record", records_per_shard=5)))
    assert made.bytes == sum(path.stat().st_size for path in tmp_path.glob("x-*.record"))
