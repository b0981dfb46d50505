"""TFRecords as inputs: records pass byte for byte, or become samples; every option works as with tars."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import COMMAND, tar2tf
from shards import examples, keys, large_shards, records, samples_of, shards_in, small_shards, tree
from tar2tf_cli import convert, load_dataset, open_records, verify
from tar2tf_cli.conversion.plan import find_inputs
from tar2tf_cli.errors import DamagedShardError, SampleError
from tar2tf_cli.ops import Func, Rename
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from verify_runs import an_example, flipped, framed

PURE = pytest.mark.parametrize("pure", ["0", "1"], ids=["kernel", "python"])


def tensorflow_wrote(path: Path, messages: Sequence[bytes], compression: str = "") -> Path:
    """A TFRecord made by TensorFlow."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for message in messages:
            writer.write(message)
    return path


def tensorflow_reads(*paths: Path) -> list[bytes]:
    import tensorflow as tf

    return [record.numpy() for record in tf.data.TFRecordDataset([*map(str, paths)])]


def some(count: int, first: int = 0, size: int = 200) -> list[bytes]:
    """Examples with a key, a label, and an image of random bytes, of another size each."""
    noise = random.Random(first)
    return [
        an_example(__key__=b"k%05d" % n, label=n, jpg=noise.randbytes(size + n % 13))
        for n in range(first, first + count)
    ]


def a_dataset(folder: Path, shards: int = 3, each: int = 50, size: int = 200) -> tuple[list[Path], list[bytes]]:
    messages = [some(each + n, 1000 * n, size) for n in range(shards)]
    paths = [tensorflow_wrote(folder / f"in-{n}.tfrecord", part) for n, part in enumerate(messages)]
    return paths, [message for part in messages for message in part]


def reshard(*args: str | Path, code: int = 0, **options: Any) -> str:
    ran = tar2tf("convert", *args, "-q", **options)
    assert ran.returncode == code, ran.stderr
    return ran.stderr


def manifest_in(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*manifest.json")
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


# --- Records pass as they are ---


@PURE
@pytest.mark.parametrize("size", [40, 3000, 300_000])
def test_records_pass_byte_for_byte_in_order_within_the_limit(tmp_path: Path, size: int, pure: str) -> None:
    each = 50 if size < 100_000 else 4
    _, messages = a_dataset(tmp_path / "in", each=each, size=size)
    limit = 10 * (size + 100)
    reshard(
        tmp_path / "in", "-o", tmp_path / "out/x-<>.record", "--max-shard-size", str(limit), env={"TAR2TF_PURE": pure}
    )
    out = shards_in(tmp_path / "out")
    assert tensorflow_reads(*out) == messages
    assert len(out) > 1
    assert all(path.stat().st_size <= limit for path in out)
    assert verify(str(tmp_path / "out/_x-manifest.json")).ok


@pytest.mark.parametrize(
    "options",
    [
        ["--num-shards", "4"],
        ["--records-per-shard", "17"],
        ["--shuffle", "--seed", "3", "--num-shards", "2"],
        ["--limit", "61"],
        ["--compression", "gzip"],
        ["--compression", "gzip", "--max-shard-size", "9kB"],
        ["--index"],
        ["--on-error", "skip"],
    ],
    ids=" ".join,
)
def test_options_work_as_with_tars_for_any_number_of_workers(tmp_path: Path, options: list[str]) -> None:
    paths, messages = a_dataset(tmp_path / "in")
    made = []
    for number, environment in enumerate(({}, {"TAR2TF_PURE": "1"})):
        out = tmp_path / f"out-{number}"
        reshard(*paths, "-o", out / "x-<>.record", "-j", str(number + 1), *options, env=environment)
        made.append(tree(out))
    assert made[0] == made[1]
    found = records(*shards_in(tmp_path / "out-0"))
    if "--shuffle" in options:
        assert found != messages
        found, messages = sorted(found), sorted(messages)
    assert found == messages[: 61 if "--limit" in options else None]
    assert verify(str(tmp_path / "out-0/_x-manifest.json")).ok


def test_a_split_goes_by_the_keys_as_that_of_tars_does(tmp_path: Path) -> None:
    shards = small_shards(tmp_path / "tars")
    split = ["--split", "train=0.7,val=0.3"]
    reshard(shards, "-o", tmp_path / "one/<split>-<>.record", *split)
    reshard(shards, "-o", tmp_path / "all/x.record")
    reshard(tmp_path / "all", "-o", tmp_path / "two/<split>-<>.record", *split)
    for name in ("train", "val"):
        pattern = f"{name}-*.record"
        assert records(*shards_in(tmp_path / "two", pattern)) == records(*shards_in(tmp_path / "one", pattern))


@pytest.mark.parametrize("method", ["gzip", "zlib", "GZIP of TensorFlow", "ZLIB of TensorFlow"])
def test_compressed_inputs_are_known_by_their_content(tmp_path: Path, method: str) -> None:
    messages = some(40)
    if method.endswith("TensorFlow"):
        path = tensorflow_wrote(tmp_path / "in.record", messages, method.partition(" ")[0])
    else:
        path = tmp_path / "in.record"
        data = framed(*messages)
        path.write_bytes(gzip.compress(data) if method == "gzip" else zlib.compress(data))
    reshard(path, "-o", tmp_path / "out.record")
    assert tensorflow_reads(tmp_path / "out.record") == messages


@pytest.mark.parametrize("bits", range(9, 16))
def test_zlib_streams_of_any_window_are_known(tmp_path: Path, bits: int) -> None:
    messages, compress = some(40), zlib.compressobj(wbits=bits)
    (tmp_path / "in.record").write_bytes(compress.compress(framed(*messages)) + compress.flush())
    reshard(tmp_path / "in.record", "-o", tmp_path / "out.record")
    assert tensorflow_reads(tmp_path / "out.record") == messages


def test_messages_of_any_kind_pass_with_one_note(tmp_path: Path) -> None:
    import tensorflow as tf

    steps = tf.train.FeatureLists(feature_list={"steps": tf.train.FeatureList(feature=[tf.train.Feature()])})
    sequence = tf.train.SequenceExample(feature_lists=steps).SerializeToString()
    messages = [*some(3), sequence, b"", b"\xff not a message", *some(4, 10), b"\xff" * 300_000]
    tensorflow_wrote(tmp_path / "in.record", messages)
    ran = tar2tf("convert", tmp_path / "in.record", "-o", tmp_path / "out-<>.record", "--records-per-shard", "4")
    assert ran.returncode == 0, ran.stderr
    assert tensorflow_reads(*shards_in(tmp_path, "out-*.record")) == messages
    assert ran.stderr.count("note:") == 1
    assert "3 records of" in ran.stderr
    assert "are not tf.train.Examples" in ran.stderr


@PURE
@pytest.mark.parametrize(
    ("options", "undescribed"),
    [
        ([], {"features": ["label"], "records": 3}),
        (["--compression", "gzip", "--shuffle"], {"features": ["label"], "records": 3}),
        (["--limit", "8", "--shuffle"], {"features": ["label"], "records": None}),
    ],
)
def test_an_output_with_whatever_passes_is_whole_to_its_manifest(
    options: list[str], undescribed: dict[str, Any], pure: str, tmp_path: Path
) -> None:
    import tensorflow as tf

    steps = tf.train.FeatureLists(feature_list={"steps": tf.train.FeatureList(feature=[tf.train.Feature()])})
    nothing = tf.train.Features(feature={"n": tf.train.Feature()})
    sequence = tf.train.SequenceExample(context=nothing, feature_lists=steps).SerializeToString()
    unset = tf.train.Example(features=nothing).SerializeToString()
    examples = [*some(3), unset, an_example(n=1), b"", an_example(label=b"a")]
    messages = [*examples[:6], sequence, b"\xff no message", *examples[6:], b"\xff" * 9]
    tensorflow_wrote(tmp_path / "in.record", messages)
    out = tmp_path / "out"
    env = {"TAR2TF_PURE": pure}
    ran = tar2tf("convert", tmp_path / "in.record", "-o", out / "x.record", *options, env=env)
    assert ran.returncode == 0, ran.stderr
    assert manifest_in(out)["undescribed"] == undescribed
    verified = tar2tf("verify", out / "_x-manifest.json", "--against", tmp_path / "in.record", env=env)
    assert verified.returncode == 0, verified.stdout


def test_a_manifest_whose_number_of_other_records_is_wrong_is_not_right(tmp_path: Path) -> None:
    tensorflow_wrote(tmp_path / "in.record", [*some(3), b"\xff no message"])
    reshard(tmp_path / "in.record", "-o", tmp_path / "out.record")
    manifest = tmp_path / "_out-manifest.json"
    manifest.write_text(manifest.read_text().replace('{"records": 1}', '{"records": 2}'))
    verified = tar2tf("verify", manifest)
    assert verified.returncode == 1
    assert "1 of the records are not tf.train.Examples, but 2 in the manifest" in verified.stdout


def test_standard_input_is_a_tfrecord_too(tmp_path: Path) -> None:
    messages = some(30)
    reshard("-", "-o", tmp_path / "out.record", input=framed(*messages))
    assert tensorflow_reads(tmp_path / "out.record") == messages


def test_records_go_to_standard_output(tmp_path: Path) -> None:
    paths, messages = a_dataset(tmp_path)
    piped = subprocess.run([*COMMAND, "convert", *paths, "-o", "-", "-q"], stdout=subprocess.PIPE, check=True)
    assert piped.stdout == framed(*messages)


# --- Which inputs ---


def test_a_folder_is_read_in_the_order_of_its_manifest(tmp_path: Path) -> None:
    reshard(small_shards(tmp_path / "tars"), "-o", tmp_path / "in/x-<>.record", "--records-per-shard", "12")
    inputs = shards_in(tmp_path / "in")
    assert len(inputs) > 10
    for number, bucket in enumerate(("in", "in/_x-manifest.json")):
        reshard(tmp_path / bucket, "-o", tmp_path / f"out-{number}.record")
        assert records(tmp_path / f"out-{number}.record") == records(*inputs)


def test_a_tfrecord_may_have_any_name(tmp_path: Path) -> None:
    path = tensorflow_wrote(tmp_path / "data.bin", some(5))
    reshard(path, "-o", tmp_path / "out.record")
    names = ["d.tfrecord-00000-of-00002", "d.tfrecord-00001-of-00002", "train-00000-of-01024", "e.tfrecords.gz"]
    for number, name in enumerate(names):
        tensorflow_wrote(tmp_path / "in" / name, some(2, 10 * number), "GZIP" if name.endswith("gz") else "")
    (tmp_path / "in/notes.txt").write_text("no shard")
    reshard(tmp_path / "in", "-o", tmp_path / "all.record", "--ignore-gaps")  # there is one of 1,024
    assert len(records(tmp_path / "all.record")) == 8


def test_tars_of_a_folder_come_before_its_tfrecords(tmp_path: Path) -> None:
    shards = small_shards(tmp_path / "in", shards=1)
    for _ in range(2):  # the second time, the output is there
        reshard(shards, "-o", shards / "x-<>.record")
        assert len(records(*shards_in(shards))) == 60


def test_shards_of_the_output_are_no_inputs(tmp_path: Path) -> None:
    paths, messages = a_dataset(tmp_path)
    for _ in range(2):
        reshard(tmp_path, "-o", tmp_path / "new-<>.record", "--num-shards", "2")
    assert records(*shards_in(tmp_path, "new-*.record")) == messages
    assert "is an input of this conversion" in reshard(*paths, "-o", paths[0], "--overwrite", code=2)
    assert tensorflow_reads(*paths) == messages


def test_a_shard_of_another_size_than_in_the_manifest_is_an_error(tmp_path: Path) -> None:
    reshard(small_shards(tmp_path / "tars"), "-o", tmp_path / "in/x-<>.record", "--num-shards", "2")
    with open(tmp_path / "in/x-2.record", "ab") as file:
        file.write(framed(*some(1)))
    assert "bytes, but" in reshard(tmp_path / "in/_x-manifest.json", "-o", tmp_path / "out.record", code=3)


# --- Damage ---


@PURE
@pytest.mark.parametrize("size", [60, 400_000])
def test_damage_is_an_error_that_names_the_record_and_publishes_nothing(tmp_path: Path, size: int, pure: str) -> None:
    messages = some(9, size=size)
    whole = framed(*messages)
    fourth = len(framed(*messages[:4]))
    for number, (data, words) in enumerate(
        [
            (flipped(whole, fourth), "the CRC of the record's length"),
            (flipped(whole, fourth + 20), "the CRC of the record's data"),
            (whole[: fourth + 30], "short of a record's end"),
            (whole[: fourth + 5], "short of a record's end"),
        ]
    ):
        path = tmp_path / f"in-{number}.record"
        path.write_bytes(data)
        failed = reshard(path, "-o", tmp_path / "out/x-<>.record", code=3, env={"TAR2TF_PURE": pure})
        assert words in failed
        assert f"in-{number}.record" in failed
        assert "record 4" in failed
        assert not [*tmp_path.glob("out/*.record")]


@PURE
def test_damaged_records_are_skipped_and_counted_and_the_rest_goes_on(tmp_path: Path, pure: str) -> None:
    messages = some(50)
    whole = framed(*messages)
    at = [len(framed(*messages[:number])) for number in (7, 23)]
    path = tmp_path / "in.record"
    path.write_bytes(flipped(flipped(whole, at[0] + 30), at[1]))
    arguments = [path, "-o", tmp_path / "out.record", "--on-error", "skip", "--errors", tmp_path / "errors.jsonl"]
    reshard(*arguments, code=1, env={"TAR2TF_PURE": pure})
    left = [message for number, message in enumerate(messages) if number not in (7, 23)]
    assert records(tmp_path / "out.record") == left
    errors = [json.loads(line) for line in (tmp_path / "errors.jsonl").read_text().splitlines()]
    assert [(error["member"], error["offset"]) for error in errors] == [("record 7", at[0]), ("record 23", at[1])]
    skipped = json.loads((tmp_path / "_out-manifest.json").read_bytes())["skipped"]
    assert skipped["samples"] == 2
    assert [(lost["from"], lost["to"]) for lost in skipped["lost"]] == [
        (at[number], at[number] + len(framed(messages[record]))) for number, record in enumerate((7, 23))
    ]
    reshard(*arguments, code=1)  # finished, and still not whole


def test_nothing_is_used_of_a_gzip_stream_whose_checksum_is_wrong(tmp_path: Path) -> None:
    good = tensorflow_wrote(tmp_path / "a.record", some(5))
    data = gzip.compress(framed(*some(40)))
    bad = tmp_path / "b.record"
    bad.write_bytes(flipped(data, len(data) - 6))
    reshard(good, bad, "-o", tmp_path / "out.record", "--on-error", "skip", code=1)
    assert records(tmp_path / "out.record") == some(5)
    assert manifest_in(tmp_path)["features"]["jpg"]["count"] == 5


def test_an_empty_file_is_an_error_unless_it_is_said_to_be_a_tfrecord(tmp_path: Path) -> None:
    good = tensorflow_wrote(tmp_path / "a.record", some(5))
    empty = tmp_path / "b.record"
    empty.touch()
    assert "b.record" in reshard(good, empty, "-o", tmp_path / "out.record", code=3)
    reshard(good, empty, "-o", tmp_path / "out.record", "--from", "tfrecord")
    assert records(tmp_path / "out.record") == some(5)


def test_a_first_record_that_is_damaged_is_skipped_where_the_kind_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    path.write_bytes(b"\xff" * 12 + framed(*some(5))[12:])
    reshard(path, "-o", tmp_path / "out.record", "--from", "tfrecord", "--on-error", "skip", code=1)
    assert records(tmp_path / "out.record") == some(5)[1:]


# --- Update and resume ---


@pytest.mark.parametrize("size", [200, 20_000])
def test_an_update_gives_the_bytes_of_a_new_conversion(tmp_path: Path, size: int) -> None:
    a_dataset(tmp_path / "in", size=size)
    options = ["--max-shard-size", str(13 * size)]
    reshard(tmp_path / "in", "-o", tmp_path / "out/x-<>.record", *options)
    tensorflow_wrote(tmp_path / "in/in-1.tfrecord", some(33, 5000, size))
    tensorflow_wrote(tmp_path / "in/in-9.tfrecord", some(8, 9000, size))
    reshard(tmp_path / "in", "-o", tmp_path / "out/x-<>.record", *options, "--update")
    reshard(tmp_path / "in", "-o", tmp_path / "new/x-<>.record", *options)
    assert tree(tmp_path / "out") == tree(tmp_path / "new")
    ran = tar2tf("convert", tmp_path / "in", "-o", tmp_path / "out/x-<>.record", *options)
    assert "up to date" in ran.stderr + ran.stdout


# --- Examples as samples ---


def test_ops_and_selections_take_examples_for_samples(tmp_path: Path) -> None:
    paths, messages = a_dataset(tmp_path / "in", shards=1)
    reshard(*paths, "-o", tmp_path / "a.record", "--select", "image=jpg,label")
    reshard(*paths, "-o", tmp_path / "b.record", "--op", "rename:image=jpg", "--op", "keep:image,label")
    wanted = examples(*paths)
    for name in ("a", "b"):
        for found, source in zip(examples(tmp_path / f"{name}.record"), wanted, strict=True):
            assert found.pop("__key__", source["__key__"]) == source["__key__"]
            assert found == {"image": source["jpg"], "label": source["label"]}
    assert len(wanted) == len(messages)


def values_of_every_kind() -> dict[str, Any]:
    generator = np.random.default_rng(3)
    kinds = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    kinds += ["float16", "float32", "float64", "complex64", "complex128"]
    values: dict[str, Any] = {"txt": b"some text", "cls": 7, "score": 0.5, "names": [b"a", b"bc"], "one": [5]}
    for kind in kinds:
        for shape in ((), (1,), (3,), (2, 3), (2, 0), (4, 5, 1)):
            values[f"{kind}{'x'.join(map(str, shape))}"] = generator.integers(0, 2, shape).astype(kind)
    return values


def test_untouched_features_are_encoded_to_the_same_bytes(tmp_path: Path) -> None:
    tars = small_shards(tmp_path / "tars", shards=1)
    values = values_of_every_kind()

    def add(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, **values}

    convert(Conversion(Input(tars), Output(tmp_path / "one/x.record"), ops=[Func(add)]), workers=1)
    same = Func(lambda sample: sample)
    convert(Conversion(Input(tmp_path / "one"), Output(tmp_path / "two/x.record"), ops=[same]), workers=1)
    assert (tmp_path / "two/x.record").read_bytes() == (tmp_path / "one/x.record").read_bytes()
    assert manifest_in(tmp_path / "two")["features"] == manifest_in(tmp_path / "one")["features"]


def test_a_manifest_says_what_arrays_are_also_of_records_that_pass(tmp_path: Path) -> None:
    tars = small_shards(tmp_path / "tars", shards=1, each=5)
    array = np.arange(24, dtype=np.float64).reshape(2, 3, 4)

    def add(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "array": array, "byte": array.astype(np.uint8)}

    convert(Conversion(Input(tars), Output(tmp_path / "one/x.record"), ops=[Func(add)]), workers=1)
    seen: list[Any] = []

    def see(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append(sample)
        return sample

    convert(Conversion(Input(tmp_path / "one"), Output(tmp_path / "seen.record"), ops=[Func(see)]), workers=1)
    assert seen[0]["array"].dtype == np.float64
    assert np.array_equal(seen[0]["array"], array)
    assert "array/shape" not in seen[0]
    reshard(tmp_path / "one", "-o", tmp_path / "two/x-<>.record", "--num-shards", "2")
    assert manifest_in(tmp_path / "two")["features"] == manifest_in(tmp_path / "one")["features"]
    loaded = next(iter(load_dataset(tmp_path / "two/_x-manifest.json").as_numpy_iterator()))
    assert np.array_equal(loaded["array"], array)
    assert np.array_equal(open_records(tmp_path / "two/_x-manifest.json")[3]["byte"], array.astype(np.uint8))


def test_arrays_without_a_manifest_have_the_shape_that_is_stored_beside_them(tmp_path: Path) -> None:
    message = an_example(boxes=[1.0, 2.0, 3.0, 4.0], **{"boxes/shape": [2, 2]}, scores=[0.5, 1.5], n=3)
    path = tensorflow_wrote(tmp_path / "in.record", [message, message])
    seen: list[Any] = []

    def see(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(sample))
        return sample

    convert(Conversion(Input(path), Output(tmp_path / "out.record"), ops=[Func(see)]), workers=1)
    first = seen[0]
    assert first["boxes"].tolist() == [[1, 2], [3, 4]]
    assert (first["scores"].tolist(), first["n"]) == ([0.5, 1.5], 3)
    assert first["__key__"] == "in-000000"
    assert seen[1]["__key__"] == "in-000001"
    (found, _) = examples(tmp_path / "out.record")
    assert found.pop("__key__") == [b"in-000000"]
    assert found == examples(path)[0]
    reshard(path, "-o", tmp_path / "passed.record")
    loaded = next(iter(load_dataset(tmp_path / "_passed-manifest.json").as_numpy_iterator()))
    assert loaded["boxes"].tolist() == [[1, 2], [3, 4]]


def test_a_record_that_is_no_example_is_a_faulty_sample_where_samples_are_needed(tmp_path: Path) -> None:
    path = tensorflow_wrote(tmp_path / "in.record", [*some(2), b"\xff\xff", *some(2, 5)])
    options = Conversion(Input(path), Output(tmp_path / "out.record"), ops=[Rename({"image": ["jpg"]})])
    with pytest.raises(SampleError, match="cannot be read as a sample") as caught:
        convert(options, workers=1)
    assert (caught.value.member, caught.value.shard) == ("record 2", str(path))
    reshard(path, "-o", tmp_path / "out.record", "--op", "rename:image=jpg", "--on-error", "skip", code=1)
    assert len(records(tmp_path / "out.record")) == 4


def test_a_number_is_a_key_to_every_command_and_a_list_is_none(tmp_path: Path) -> None:
    numbered = [an_example(__key__=7 * number, txt=b"%d" % number) for number in range(4)]
    path = tensorflow_wrote(tmp_path / "in.record", numbered)
    for name, options in (("a.record", ["--op", "filter:txt"]), ("b.tar", [])):
        reshard(path, "-o", tmp_path / name, *options)
        assert tar2tf("diff", path, tmp_path / name).returncode == 0
    assert keys(tmp_path / "a.record") == ["0", "7", "14", "21"]
    for name in ("in.record", "b.tar"):
        assert tar2tf("inspect", tmp_path / name, "--keys").stdout.split() == ["0", "7", "14", "21"]
        with open_records(tmp_path / name) as found:
            assert found.key("14")["txt"] == b"2"
    several = tensorflow_wrote(tmp_path / "several.record", [an_example(__key__=[b"a", b"b"], txt=b"x"), *numbered])
    assert "'__key__' is not one text" in reshard(several, "-o", tmp_path / "c.record", "--op", "filter:txt", code=3)
    reshard(several, "-o", tmp_path / "d.record")
    assert records(tmp_path / "d.record")[1:] == numbered


def test_large_records_are_copied_from_the_input(tmp_path: Path) -> None:
    reshard(large_shards(tmp_path / "tars"), "-o", tmp_path / "in/x-<>.record", "--num-shards", "3")
    reshard(tmp_path / "in", "-o", tmp_path / "out/x-<>.record", "--records-per-shard", "7")
    assert records(*shards_in(tmp_path / "out")) == records(*shards_in(tmp_path / "in"))


def test_errors_are_raised_with_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "in.record"
    path.write_bytes(framed(*some(3))[:-1])
    with pytest.raises(DamagedShardError) as caught:
        convert(Conversion(Input(path), Output(tmp_path / "out.record")), workers=1)
    assert caught.value.kind == "truncated"


@PURE
@pytest.mark.parametrize("size", [300, 12_000])
def test_tar_to_tfrecord_to_tar_to_tfrecord_gives_the_first_records(tmp_path: Path, size: int, pure: str) -> None:
    environment = {"TAR2TF_PURE": pure}
    shards = small_shards(tmp_path / "a") if size < 1000 else large_shards(tmp_path / "a", size=size)
    limit = ["--max-shard-size", str(20 * size)]
    reshard(shards, "-o", tmp_path / "b/x-<00000>.record", "--type", "cls=int64", *limit, env=environment)
    reshard(tmp_path / "b", "-o", tmp_path / "c/x-<00000>.tar", *limit, env=environment)
    reshard(tmp_path / "c", "-o", tmp_path / "d/x-<00000>.record", "--type", "cls=int64", *limit, env=environment)
    first, last = shards_in(tmp_path / "b"), shards_in(tmp_path / "d")
    assert len(first) > 2
    assert b"".join(path.read_bytes() for path in last) == b"".join(path.read_bytes() for path in first)
    sources = [sample for tar in sorted(shards.glob("*.tar")) for sample in samples_of(tar)]
    packed = [sample for tar in shards_in(tmp_path / "c", "*.tar") for sample in samples_of(tar)]
    assert sorted(packed) == sorted(sources)


# --- Stores ---


@pytest.mark.xdist_group("s3")
def test_tfrecords_of_a_bucket_are_resharded_in_the_bucket(s3: str, s3_client: Any, tmp_path: Path) -> None:
    bucket = "records-in"
    s3_client.create_bucket(Bucket=bucket)
    tars = small_shards(tmp_path / "tars")
    reshard(tars, "-o", f"s3://{bucket}/a/x-<>.record", "--records-per-shard", "20", "--type", "cls=int64")
    reshard(tars, "-o", tmp_path / "one.record", "--type", "cls=int64")
    for number, inputs in enumerate(["a", "a/_x-manifest.json", "a/x-{1..13}.record"]):
        options = ["--num-shards", "3"] if number else ["--max-shard-size", "20kB"]
        reshard(f"s3://{bucket}/{inputs}", "-o", f"s3://{bucket}/b{number}/y-<>.record", *options)
        reshard(f"s3://{bucket}/b{number}/_y-manifest.json", "-o", tmp_path / f"back-{number}.record")
        assert (tmp_path / f"back-{number}.record").read_bytes() == (tmp_path / "one.record").read_bytes()
        assert verify(f"s3://{bucket}/b{number}/_y-manifest.json", against=f"s3://{bucket}/{inputs}").ok


def test_one_shard_of_a_bucket_is_compared_with_what_was_made_of_it(s3: str, s3_client: Any, tmp_path: Path) -> None:
    for bucket in ("one-shard", "moved-shard"):
        s3_client.create_bucket(Bucket=bucket)
        reshard(small_shards(tmp_path / bucket), "-o", f"s3://{bucket}/a/<input>.tar")
    reshard("s3://one-shard/a/small-1.tar", "-o", tmp_path / "one.record")
    for there in ("one-shard/a/small-1.tar", "one-shard/a", "moved-shard/a/small-1.tar"):
        assert verify(tmp_path / "_one-manifest.json", against=f"s3://{there}").ok


def test_the_descriptions_of_tfrecords_go_to_other_machines(tmp_path: Path) -> None:
    reshard(small_shards(tmp_path / "tars"), "-o", tmp_path / "in/x-<>.record", "--num-shards", "2")
    shards = find_inputs(Conversion(Input(tmp_path / "in"), Output(tmp_path / "out.record")))
    again = pickle.loads(pickle.dumps(shards))
    assert [again.described[item.name]["cls"]["dtype"] for item in again.items] == ["bytes", "bytes"]


def test_features_of_several_kinds_pass_and_are_left_out_of_the_manifest(tmp_path: Path) -> None:
    one = [an_example(a=1, b=b"x", c=2), an_example(a=2.5, b=b"y", c=3)]
    two = [an_example(a=1, b=3, c=4)]
    paths = [tensorflow_wrote(tmp_path / f"{n}.record", part) for n, part in enumerate((one, two))]
    ran = tar2tf("convert", *paths, "-o", tmp_path / "out.record")
    assert ran.returncode == 0, ran.stderr
    assert tensorflow_reads(tmp_path / "out.record") == [*one, *two]
    assert "records differ in the kind of a, b; the manifest leaves them out" in ran.stderr
    assert {name: look["count"] for name, look in manifest_in(tmp_path)["features"].items()} == {"c": 3}
    tar = small_shards(tmp_path / "tars", shards=1, each=4) / "small-0.tar"
    number = tensorflow_wrote(tmp_path / "n.record", [an_example(cls=3, jpg=b"x")])
    for order in ([tar, number], [number, tar]):
        reshard(*order, "-o", tmp_path / "both/x.record", "--overwrite")
        assert manifest_in(tmp_path / "both")["features"].keys() == {"__key__", "jpg"}


def test_a_name_says_what_content_cannot(tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    path.write_bytes(b"\xff" * 12 + framed(*some(5))[12:])
    assert "record 0" in reshard(path, "-o", tmp_path / "out.record", code=3)
    reshard(path, "-o", tmp_path / "out.record", "--on-error", "skip", code=1)
    assert records(tmp_path / "out.record") == some(5)[1:]
