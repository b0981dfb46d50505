"""What `tar2tf inspect --code` prints parses every kind of output that tar2tf can write, as `load_dataset` does."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from images import jpeg, photo
from shards import write_tar
from tar2tf_cli import Dataset, load_dataset, open_records
from tar2tf_cli.ops import Decode
from tar2tf_cli.pipeline import Pipeline
from verify_runs import Ran, convert


def in_file(save: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    save(file, *arguments, **options)
    return file.getvalue()


def sound(length: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setparams((2, 2, 8000, 0, "NONE", ""))
        wav.writeframes(np.arange(2 * length, dtype="<i2").tobytes())
    return file.getvalue()


def frames(count: int) -> bytes:
    images = [PIL.Image.fromarray(photo(6, 8)[::step]) for step in [1] * count]
    return in_file(images[0].save, "GIF", save_all=True, append_images=[PIL.Image.new("RGB", (8, 6))] * (count - 1))


def sample(number: int) -> dict[str, bytes]:
    """One of each kind of entry; sizes and counts differ from sample to sample."""
    annotations = [{"bbox": [1, 2, 3, 4], "category_id": n + 1, "name": f"class {n}"} for n in range(number % 3)]
    mask = PIL.Image.fromarray(np.arange(80, dtype=np.uint8).reshape(8, 10) % 4)
    return {
        "jpg": jpeg(photo(8, 10)),
        "png": in_file(mask.save, "PNG"),
        "cls": b"%d" % (number % 2),
        "txt": b"some words of %d" % number,
        "json": json.dumps({"id": number, "score": 0.5 + number, "annotations": annotations}).encode(),
        "npy": in_file(np.save, np.full((2, number + 1), number, np.float32)),
        "vector.npy": in_file(np.save, np.arange(5, dtype=np.float32) + number),
        "growing.npy": in_file(np.save, np.arange(number, dtype=np.int64)),
        "wide.npy": in_file(np.save, np.full((2, 3), number / 3)),
        "npz": in_file(np.savez, a=np.arange(3, dtype=np.int16), b=np.ones((2, 2), np.uint8)),
        "wav": sound(20 + number),
        "gif": frames(2),
        "0.webp": in_file(mask.convert("RGB").save, "WEBP", lossless=True),
        "1.webp": in_file(mask.convert("RGB").save, "WEBP", lossless=True),
    }


OBJECTS = ("bbox=float_list", "category_id=int64_list", "name=bytes_list")

OUTPUTS: dict[str, tuple[str, ...]] = {
    "entries as they are": (),
    "types": ("--type", "cls=int64", "--type", "__key__=bytes"),
    "gzip": ("--compression", "gzip"),
    "an index": ("--index",),
    "shards of a split": ("--split", "train=0.5,val=0.5", "-o", "out/<split>-<>.record"),
    "images as pixels": ("--op", "decode:jpg", "--select", "image=jpg,label=cls"),
    "images of one size": ("--op", "decode:jpg", "--op", "resize:jpg,4x4", "--select", "jpg"),
    "images as float16": ("--op", "decode:jpg", "--op", "convert:jpg,float16", "--select", "jpg"),
    "images encoded again": ("--op", "decode:jpg", "--op", "encode:jpg,png", "--select", "jpg,cls"),
    "masks": ("--op", "decode:png", "--op", "resize:png,4x4,nearest", "--select", "image=jpg,mask=png"),
    "masks of 16 bits": ("--op", "decode:png,dtype=uint16", "--select", "png"),
    "animations": ("--op", "decode:gif", "--select", "gif"),
    "sound": ("--op", "decode:wav", "--select", "audio=wav,rate=wav/sample_rate"),
    "arrays of several shapes": ("--op", "decode:npy", "--select", "npy"),
    "vectors": ("--op", "decode:vector.npy", "--select", "vector=vector.npy"),
    "vectors of several lengths": ("--op", "decode:growing.npy", "--select", "vector=growing.npy"),
    "arrays of float64": ("--op", "decode:wide.npy", "--select", "wide=wide.npy"),
    "float64 as float_list": ("--op", "decode:wide.npy", "--select", "wide=wide.npy", "--type", "wide=float_list"),
    "several arrays": ("--op", "decode:npz", "--select", "a=npz/a,b=npz/b"),
    "several entries as one": ("--select", "frames=*.webp,cls"),
    "numbers of JSON": ("--select", "id=json:id,score=json:score,none=json:none=7"),
    "nested lists": ("--select", "boxes=json:annotations.*.bbox", "--type", "boxes=float_list"),
    "lists of texts": ("--select", "names=json:annotations.*.name", "--type", "names=bytes_list"),
    "objects": ("--select", "objects=json:annotations", *(f"--type=objects/{kind}" for kind in OBJECTS)),
    "labels": ("--select", "names=json:annotations.*.name,cls", "--labels", "names=auto", "--labels", "cls=auto"),
    "image-label": ("--preset", "image-label"),
    "imagenet": ("--preset", "imagenet"),
    "imagenet-tensor": ("--preset", "imagenet-tensor"),
    "imagenet-tensor of one size": ("--preset", "imagenet-tensor", "--image-size", "4"),
    "detection": ("--preset", "detection"),
    "segmentation": ("--preset", "segmentation"),
    "webdataset": ("--preset", "webdataset"),
    "joined": ("--join", "captions.csv", "--select", "cls,caption,score", "--type", "score=float"),
    "images turned upright": ("--op", "orient:jpg,3", "--select", "jpg"),
    "only keys": ("--op", "keep:nothing"),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(2):
        write_tar(folder / f"{shard}.tar", [(f"{n:04d}", sample(n)) for n in range(3 * shard, 3 * shard + 3)])
    return folder


def work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a table of captions, which can be joined."""
    monkeypatch.chdir(folder)
    lines = [f"{number:04d},caption {number},{number / 2}\n" for number in range(6)]
    Path("captions.csv").write_text("key,caption,score\n" + "".join(lines))


def run(code: str) -> list[Any]:
    """Run a program as it is, and return what its dataset gives."""
    space: dict[str, Any] = {}
    exec(compile(code, "pasted", "exec"), space)
    return list(space["dataset"])


@pytest.mark.parametrize("name", OUTPUTS)
def test_values_are_those_of_load_dataset(
    name: str, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_inspect: Callable[..., Ran]
) -> None:
    work(tmp_path, monkeypatch)
    done = convert(shards, "-o", "out/all-<>.record", "--records-per-shard", "4", *OUTPUTS[name])
    assert done.code == 0, done.err
    loaded = list(load_dataset("out"))
    assert len(loaded) == 6
    parsed = run(run_inspect("out", "--code").out)
    for one, other in zip(parsed, loaded, strict=True):
        assert {item for item in one if not item.endswith("/shape")} == {*other}
        for feature, value in other.items():
            if one[feature].dtype == value.dtype:
                assert one[feature].shape == value.shape
                assert tf.reduce_all(one[feature] == value)
            else:  # an encoded image or array is decoded
                assert value.dtype == tf.string
                assert one[feature].shape.rank > 0
    next(Path("out").glob("*manifest.json")).unlink()
    assert len(run(run_inspect("out", "--code").out)) == 6


def test_what_only_some_samples_were_joined_with_has_a_default(
    shards: Path, tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    table = tmp_path / "some.csv"
    table.write_text("key,words\n0001,one two\n")
    out = tmp_path / "x.record"
    assert convert(shards, "-o", out, "--join", table, "--join-missing", "keep", "--op", "keep:cls,words").code == 0
    assert [one["words"] for one in run(run_inspect(out, "--code").out)] == [b"", b"one two", *[b""] * 4]


def by_pipeline(shards: Path, out: Path) -> None:
    Pipeline().from_tar(str(shards / "0.tar")).sample_to_tf_example({"cls": "int64"}).to_tf_record(str(out)).do()


def by_dataset(shards: Path, out: Path) -> None:
    Dataset(shards, conversions=[Decode("jpg")], selections=["jpg", "cls"]).load("0.tar", str(out))


def by_old_client(shards: Path, out: Path) -> None:
    Dataset(shards).load("0.tar", str(out))


def by_function(shards: Path, out: Path) -> None:
    def to_example(sample: dict[str, Any]) -> tf.train.Example:
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(sample["cls"])]))
        return tf.train.Example(features=tf.train.Features(feature={"label": label}))

    Dataset(shards, conversions=[]).load("0.tar", str(out), to_example, num_workers=1)


def from_images(shards: Path, out: Path) -> None:
    for name in ("cat", "dog"):
        (out.parent / "images" / name).mkdir(parents=True)
        (out.parent / "images" / name / "1.jpg").write_bytes(sample(1)["jpg"])
    assert convert(out.parent / "images", "--from", "imagefolder", "-o", out).code == 0


def from_table(shards: Path, out: Path) -> None:
    (out.parent / "1.jpg").write_bytes(sample(1)["jpg"])
    (out.parent / "table.csv").write_text("image,label,score\n1.jpg,cat,0.5\n1.jpg,dog,1\n")
    columns = "image=image:jpg,label=label,score=score:float"
    assert convert(out.parent / "table.csv", "--from", "table", "--columns", columns, "-o", out).code == 0


def from_sequences(shards: Path, out: Path) -> None:
    with tf.io.TFRecordWriter(str(out.parent / "in.record")) as writer:
        for steps in (1, 3):
            sequence = tf.train.SequenceExample()
            sequence.context.feature["id"].int64_list.value.append(steps)
            for number in range(steps):
                sequence.feature_lists.feature_list["words"].feature.add().bytes_list.value.append(b"%d" % number)
            writer.write(sequence.SerializeToString())
    assert convert(out.parent / "in.record", "-o", out).code == 0


def from_records(shards: Path, out: Path) -> None:
    assert convert(shards, "-o", out.parent / "in.record", "--type", "cls=int64").code == 0
    assert convert(out.parent / "in.record", "-o", out, "--op", "decode:npy", "--select", "npy,cls").code == 0


MAKERS = (
    by_pipeline,
    by_dataset,
    by_old_client,
    by_function,
    from_images,
    from_table,
    from_sequences,
    from_records,
)


@pytest.mark.parametrize("make", MAKERS)
def test_records_made_in_another_way_are_parsed(
    make: Callable[[Path, Path], None], shards: Path, tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    out = tmp_path / "out.record"
    make(shards, out)
    assert len(run(run_inspect(out, "--code").out)) == len(list(tf.data.TFRecordDataset(str(out))))


TARS: dict[str, tuple[str, ...]] = {
    "entries": ("-o", "out/new-<>.tar"),
    "gzip": ("-o", "out/new-<>.tar.gz"),
    "zstd": ("-o", "out/new-<>.tar.zst"),
    "folders": ("-o", "out/<split>/new-<>.tar", "--split", "train=0.5,val=0.5"),
    "arrays": ("-o", "out/new-<>.tar", "--op", "decode:jpg", "--op", "resize:jpg,4x4", "--select", "image=jpg,cls"),
    "sound": ("-o", "out/new-<>.tar", "--op", "decode:wav", "--select", "audio=wav,png"),
    "joined": ("-o", "out/new-<>.tar", "--join", "captions.csv", "--select", "png,caption,score"),
    "labels": ("-o", "out/new-<>.tar", "--select", "png,label=cls", "--labels", "label=auto"),
    "many": ("-o", "out/new-<>.tar", "--records-per-shard", "1", "--select", "png,txt"),
}


@pytest.mark.parametrize("name", TARS)
def test_samples_of_tars_are_those_that_were_written(
    name: str, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_inspect: Callable[..., Ran]
) -> None:
    work(tmp_path, monkeypatch)
    monkeypatch.setattr("tar2tf_cli.checking.parse_code.MOST_FILES", 5)
    done = convert(shards, "--records-per-shard", "4", *TARS[name])
    assert done.code == 0, done.err
    code = run_inspect("out", "**/*.tar*", "--code").out
    assert ("new-*.tar" in code) == (name == "many")
    parsed = run(code)
    samples = [dict(one) for path in sorted(Path("out").rglob("*.tar*")) for one in open_records(path)]
    assert len(parsed) == len(samples) == 6
    for one, other in zip(parsed, samples, strict=True):
        assert one.keys() == other.keys()
        for entry, value in other.items():
            if one[entry].dtype == tf.string:
                assert one[entry].numpy() == (value.encode() if isinstance(value, str) else value)
            elif entry != "cls":  # which is a number in a `Dataset`
                assert one[entry].shape.rank > 0
    assert parsed[0].get("jpg", parsed[0].get("png", parsed[0].get("image.npy"))).shape[2] in (1, 3)


def test_entries_that_some_samples_lack_are_named_and_not_read(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    gray, colours = jpeg(photo(4, 4, 1)[..., 0], "L"), jpeg(photo(4, 4))
    tar = write_tar(tmp_path / "a.tar", [("0", {"jpg": gray, "txt": b"a"}), ("1", {"jpg": colours})])
    code = run_inspect(tar, "--code").out
    assert '# "txt" is missing in 1' in code
    assert [one["jpg"].shape for one in run(code)] == [(4, 4, 3), (4, 4, 3)]
