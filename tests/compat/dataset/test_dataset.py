"""`Dataset` and `AisDataset`: streams of tensors in memory, TFRecord with a path, in the manner of the first client."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from commands import tar2tf
from jpeg_shards import ALL, COUNT, IMAGES
from shards import examples, records, tree, write_tar
from tar2tf_cli import AisDataset, Dataset, default_record_parser, load_dataset, open_records
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.errors import OutputExistsError, SampleError, SourceError, Tar2tfError, UsageError
from tar2tf_cli.ops import (
    Cast,
    Convert,
    Decode,
    Func,
    Rename,
    Resize,
    Rotate,
    Select,
    SelectDict,
    SelectJSON,
    SelectList,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def expected_image(data: bytes, side: int = 224) -> np.ndarray:
    return tf.image.resize(tf.image.convert_image_dtype(tf.io.decode_image(data), tf.float32), (side, side)).numpy()


# --- The original client's examples, with a directory as bucket ---


def test_conversions_and_selections_left_out_are_the_originals(bucket: str) -> None:
    train = Dataset(bucket).load("train-{0..1}.tar", num_workers=4)
    assert train.element_spec == (tf.TensorSpec((224, 224, 3), tf.float32), tf.TensorSpec((), tf.int32))
    found = list(train)
    assert len(found) == 16
    for number, (image, label) in enumerate(found):
        assert label.numpy() == number % 5
        np.testing.assert_allclose(image, expected_image(IMAGES[number]), atol=0.01 / 255)


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")  # Keras, of any unknown cardinality
def test_a_model_trains_on_what_load_returns(bucket: str) -> None:
    data = Dataset(
        bucket,
        conversions=[Decode("jpg"), Convert("jpg", tf.float32), Resize("jpg", (32, 32))],
        selections=["jpg", "cls"],
    )
    train = data.load("train-{0..1}.tar", num_workers=2).shuffle(16).batch(4)
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((32, 32, 3)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(5)]
    )
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(train, epochs=2, verbose=0, shuffle=False)
    assert len(history.history["loss"]) == 2
    assert np.isfinite(history.history["loss"]).all()


def test_selections_out_of_json_make_the_label(bucket: str) -> None:
    data = Dataset(
        bucket,
        conversions=[Decode("jpg"), Rotate("jpg"), Resize("jpg", (16, 16))],
        selections=["jpg", SelectJSON("json", ["annotations", 0, "label"])],
    )
    found = list(data.load(ALL))
    assert [int(label) for _, label in found] == [number * 10 for number in range(COUNT)]
    assert found[0][1].dtype == tf.int64


def test_lists_and_dicts_of_selections_nest(bucket: str) -> None:
    data = Dataset(
        bucket,
        conversions=[Decode("jpg"), Resize("jpg", 8), Cast("jpg", "uint8")],
        selections=[
            SelectDict(image="jpg", box=SelectJSON("json", "box")),
            SelectList("cls", SelectJSON("json", "name")),
        ],
    )
    first, (label, name) = next(iter(data.load(ALL)))
    assert (first["image"].dtype, first["image"].shape, first["box"].numpy().tolist()) == (
        tf.uint8,
        (8, 8, 3),
        [0, 0.5],
    )
    assert (label.dtype, label.numpy(), name.numpy()) == (tf.int32, 0, b"n0")


@pytest.mark.parametrize("selections", [{"image": "jpg", "label": "cls"}, SelectDict(image="jpg", label="cls")])
def test_a_mapping_of_selections_makes_dicts_and_names_features(selections: Any, bucket: str, tmp_path: Path) -> None:
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", 8)], selections=selections)
    element = next(iter(data.load(ALL)))
    assert set(element) == {"image", "label"}
    assert element["label"].dtype == tf.int32
    (path,) = data.load(ALL, path=str(tmp_path / "x.record"), num_workers=1)
    assert set(examples(Path(path))[0]) == {"image", "image/shape", "label"}


@pytest.mark.parametrize("selections", ["jpg", Select("jpg"), ["jpg"]])
def test_a_single_selection_is_the_element_itself(selections: Any, bucket: str) -> None:
    (image,) = itertools.islice(Dataset(bucket, conversions=[], selections=selections).load(ALL), 1)
    assert image.numpy() == IMAGES[0]


@pytest.mark.parametrize("shapes", [None, {"a": (), "b": ()}], ids=["types", "types and shapes"])
def test_values_do_not_change_places_where_types_are_built_otherwise(shapes: Any, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0", {"txt": b"x", "cap": b"y"})])
    types = {"a": tf.string, "b": tf.string}
    load = Dataset(str(tmp_path), conversions=[], selections=["txt", "cap"]).load
    with pytest.raises((Tar2tfError, tf.errors.OpError), match=r"\(one value, one value\)"):
        list(load("a.tar", output_types=types, output_shapes=shapes))
    ((first, second),) = load("a.tar", output_types=(tf.string, tf.string), output_shapes=((), ()))
    assert (first.numpy(), second.numpy()) == (b"x", b"y")


def test_a_lambda_and_a_rename_among_the_conversions(bucket: str) -> None:
    data = Dataset(
        bucket,
        conversions=[
            Rename(image=["jpg", "png"]),
            Func(lambda sample: {**sample, "label": int(sample["cls"]) + 100} if int(sample["cls"]) != 2 else None),
            Decode("image"),
            Resize("image", (8, 8)),
        ],
        selections=["image", "label"],
    )
    labels = [int(label) for _, label in data.load(ALL)]
    assert labels == [number % 5 + 100 for number in range(COUNT) if number % 5 != 2]


def test_one_op_needs_no_list(bucket: str) -> None:
    image, _ = next(iter(Dataset(bucket, conversions=Decode("jpg")).load(ALL)))
    np.testing.assert_array_equal(image, tf.io.decode_image(IMAGES[0]))


def test_with_a_path_records_are_as_the_default_parser_reads_them(bucket: str, tmp_path: Path) -> None:
    paths = Dataset(bucket).load("train-{0..1}.tar", path=str(tmp_path / "train.record"), num_workers=2)
    assert paths == [str(tmp_path / "train.record")]
    train = tf.data.TFRecordDataset(filenames=paths).map(default_record_parser)
    found = list(train)
    assert [int(label) for _, label in found] == [number % 5 for number in range(16)]
    expected = tf.image.resize(tf.io.decode_image(IMAGES[3]), (224, 224))
    np.testing.assert_allclose(found[3][0], expected, atol=0.01)
    assert {image.shape for image, _ in found} == {tf.TensorShape((224, 224, 3))}
    batch, _ = next(iter(train.batch(16)))
    assert batch.shape == (16, 224, 224, 3)


@pytest.mark.parametrize("template", ["train-{}.record", "train-<>.record"])
def test_a_numbered_path_and_a_size_make_shards(template: str, bucket: str, tmp_path: Path) -> None:
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (16, 16)), Cast("jpg", "uint8")])
    paths = data.load(ALL, path=str(tmp_path / template), max_shard_size="5kB", num_workers=1)
    assert paths == [str(tmp_path / f"train-{number}.record") for number in range(1, len(paths) + 1)]
    assert len(paths) > 3
    assert all(os.path.getsize(path) <= 5000 for path in paths)
    assert sum(len(records(Path(path))) for path in paths) == COUNT
    again = data.load(ALL, path=str(tmp_path / template), max_shard_size=5000, num_workers=1)
    assert again == paths


def test_paths_come_from_a_generator(bucket: str, tmp_path: Path) -> None:
    def names() -> Iterator[str]:
        for number in itertools.count(7):
            yield str(tmp_path / f"part{number % 2}" / f"shard-{number}")

    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (16, 16))])
    paths = data.load(ALL, path=names, max_shard_size="30kB", num_workers=1)
    assert paths == list(itertools.islice(names(), len(paths)))
    assert len(paths) > 2
    made = {os.path.relpath(path, tmp_path) for path in paths}
    assert set(tree(tmp_path)) == {*made, "_shard-7-manifest.json"}
    manifest = str(tmp_path / "_shard-7-manifest.json")
    assert verify(manifest, workers=1).ok
    assert len(list(load_dataset(manifest))) == len(open_records(manifest)) == len(IMAGES)
    by_template = data.load(ALL, path=str(tmp_path / "t-<>"), max_shard_size="30kB", num_workers=1)
    assert [Path(path).read_bytes() for path in by_template] == [Path(path).read_bytes() for path in paths]
    before = {path: os.stat(path).st_ino for path in paths}
    assert data.load(ALL, path=names(), max_shard_size="30kB", num_workers=1) == paths
    assert {path: os.stat(path).st_ino for path in paths} == before
    with pytest.raises(OutputExistsError, match="shard-7"):
        data.load(ALL, path=names(), max_shard_size="20kB", num_workers=1)
    assert [Path(path).read_bytes() for path in by_template] == [Path(path).read_bytes() for path in paths]
    smaller = data.load(ALL, path=names(), max_shard_size="20kB", num_workers=1, overwrite=True)
    assert len(smaller) > len(paths)
    assert os.path.getsize(paths[0]) <= 20_000


def test_a_generator_run_that_was_cut_off_goes_on(bucket: str, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in "abcdefgh"]
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (16, 16))])
    paths = data.load(ALL, path=names, max_shard_size="30kB", num_workers=1)
    expected = tree(tmp_path)
    os.unlink(paths[1])
    assert data.load(ALL, path=names, max_shard_size="30kB", num_workers=1) == paths
    assert tree(tmp_path) == expected
    os.truncate(paths[1], 100)
    with pytest.raises(OutputExistsError, match=r"b: already exists"):
        data.load(ALL, path=names, max_shard_size="30kB", num_workers=1)


def test_the_path_examples_of_the_original_client_go_into_one_folder_and_run_again(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ais = AisDataset(bucket)
    made: list[list[str]] = []
    for _ in range(2):
        made.append(ais.load("train-{0..1}.tar", path="train.record", num_workers=1))
        made.append(ais.load("train-{0..1}.tar", path="train-{}.record", max_shard_size="2kB", num_workers=1))
        records = tf.data.TFRecordDataset(filenames=made[-1]).map(default_record_parser)
        assert len(list(records)) == len(list(tf.data.TFRecordDataset(made[-2])))
        stats = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    assert made[:2] == made[2:]
    assert made[0] == ["train.record"]
    assert len(made[1]) > 2
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == stats
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        "_train-N.record-manifest.json",
        "_train-manifest.json",
    ]
    assert verify("_train-manifest.json", workers=1).ok
    assert verify("_train-N.record-manifest.json", workers=1).ok
    ais.load("train-0.tar", path="train-{}.record", max_shard_size="2kB", num_workers=1, overwrite=True)
    assert Path("train.record").exists(), "what another manifest lists is not removed"
    ais.load("train-{0..1}.tar", path="train-{}.record", max_shard_size="2kB", num_workers=1, update=True)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in stats}


def test_overwrite_replaces_what_another_conversion_wrote(bucket: str, tmp_path: Path) -> None:
    path = str(tmp_path / "train-{}.record")
    Dataset(bucket).load("train-0.tar", path, num_workers=1)
    with pytest.raises(OutputExistsError, match="other inputs"):
        Dataset(bucket).load("train-1.tar", path, num_workers=1)
    Dataset(bucket).load("train-1.tar", path, num_workers=1, overwrite=True)
    assert len(list(AisDataset(bucket).load_from_tar("train-1.tar", path, num_workers=1, overwrite=True))) == 8


def test_a_generator_with_too_few_paths_is_an_error_and_writes_nothing(bucket: str, tmp_path: Path) -> None:
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (16, 16))])
    with pytest.raises(UsageError, match="1 paths were given for"):
        data.load(ALL, path=[str(tmp_path / "one")], max_shard_size="30kB", num_workers=1)
    with pytest.raises(UsageError, match="no paths were given"):
        data.load(ALL, path=iter(()), num_workers=1)
    assert tree(tmp_path) == {}


def test_beside_files_of_a_generator_stands_only_their_manifest(bucket: str, tmp_path: Path) -> None:
    names = (str(tmp_path / folder / "x.record") for folder in "abcdefghij")
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (16, 16))])
    made = data.load(ALL, names, max_shard_size="30kB", num_workers=2)
    assert sorted(tree(tmp_path)) == ["_x.record-manifest.json", *(os.path.relpath(name, tmp_path) for name in made)]
    assert len(made) > 1


def test_an_existing_file_is_not_overwritten_by_a_path_of_a_generator(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("precious")
    with pytest.raises(OutputExistsError):
        Dataset(bucket).load(ALL, path=[str(tmp_path / "b")])
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (16, 16))])
    with pytest.raises(OutputExistsError):
        data.load(ALL, path=[str(tmp_path / name) for name in "abcdefgh"], max_shard_size="30kB", num_workers=1)
    assert tree(tmp_path) == {"b": b"precious"}


def test_record_to_example_makes_the_examples(bucket: str, tmp_path: Path) -> None:
    def to_example(sample: dict[str, Any]) -> tf.train.Example:
        feature = {
            "key": tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample["__key__"].encode()])),
            "digits": tf.train.Feature(int64_list=tf.train.Int64List(value=range(int(sample["cls"])))),
            "size": tf.train.Feature(float_list=tf.train.FloatList(value=[len(sample["jpg"])])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))

    for number, function in enumerate(
        [
            to_example,
            lambda sample: to_example(sample).SerializeToString(),
            lambda s: {"key": s["__key__"], "size": float(len(s["jpg"])), "digits": [*range(int(s["cls"]))]},
        ]
    ):
        if number == 2:  # a list without values has no type of its own
            with pytest.raises(Exception, match="empty list"):
                Dataset(bucket).load(ALL, path=str(tmp_path / "no"), record_to_example=function, num_workers=1)
            continue
        (path,) = Dataset(bucket).load(
            ALL, path=str(tmp_path / f"{number}.record"), record_to_example=function, num_workers=1
        )
        found = examples(Path(path))
        assert len(found) == COUNT
        assert found[3] == {"key": [b"0003"], "digits": [0, 1, 2], "size": [float(len(IMAGES[3]))]}


def test_record_to_example_sees_what_the_conversions_made(bucket: str, tmp_path: Path) -> None:
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (4, 5))])
    function = lambda sample: {"shape": list(sample["jpg"].shape)}  # noqa: E731
    (path,) = data.load(ALL, path=tmp_path / "x.record", record_to_example=function, num_workers=2)
    assert examples(Path(path))[0] == {"shape": [4, 5, 3]}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda sample: 1 / 0, "ZeroDivisionError"),
        (lambda sample: 5, "int.*tf.train.Example"),
        (lambda sample: b"\x00junk", "tf.train.Example"),
        (lambda sample: None, "NoneType"),
    ],
)
def test_a_record_to_example_that_misbehaves_is_named_with_the_sample(
    function: Any, words: str, bucket: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=rf"train-0\.tar, sample 0000.*test_dataset:<lambda>.*{words}"):
        Dataset(bucket).load(ALL, path=str(tmp_path / "x"), record_to_example=function, num_workers=1)


def test_a_record_to_example_that_changed_is_another_conversion(bucket: str, tmp_path: Path) -> None:
    data, path = Dataset(bucket), str(tmp_path / "x.record")
    data.load(ALL, path=path, record_to_example=lambda sample: {"n": 1}, num_workers=1)
    with pytest.raises(UsageError):
        data.load(ALL, path=path, record_to_example=lambda sample: {"n": 2}, num_workers=1)


def test_load_from_tar_makes_pairs_in_memory_and_records_on_disk(bucket: str, tmp_path: Path) -> None:
    ais = AisDataset(bucket)

    def to_pair(sample: dict[str, Any]) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(sample["jpg"]), (8, 8)), int(sample["cls"])

    pairs = ais.load_from_tar(
        "train-{0..1}.tar",
        record_to_pair=to_pair,
        output_types=(tf.float32, tf.int32),
        output_shapes=(tf.TensorShape([8, 8, 3]), tf.TensorShape([])),
    )
    assert pairs.element_spec == (tf.TensorSpec((8, 8, 3), tf.float32), tf.TensorSpec((), tf.int32))
    found = list(pairs)
    assert [int(label) for _, label in found] == [number % 5 for number in range(16)]
    np.testing.assert_allclose(found[2][0], tf.image.resize(tf.io.decode_jpeg(IMAGES[2]), (8, 8)), atol=1e-3)
    on_disk = ais.load_from_tar("train-{0..1}.tar", path=str(tmp_path / "x-{}.record"))
    assert [int(label) for _, label in on_disk.map(default_record_parser)] == [number % 5 for number in range(16)]
    plain = ais.load_from_tar("train-0.tar")
    assert plain.element_spec[0].shape == (224, 224, 3)
    typed = ais.load_from_tar("train-0.tar", output_types=(tf.float32, tf.int64), output_shapes=((224, 224, 3), ()))
    assert next(iter(typed))[1].dtype == tf.int64


def test_record_to_pair_sees_what_the_conversions_made(bucket: str) -> None:
    ais = AisDataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (4, 6))])
    image, label = next(iter(ais.load_from_tar("train-0.tar", record_to_pair=lambda s: (s["jpg"], s["cls"]))))
    assert (image.shape, label.numpy()) == ((4, 6, 3), 0)


def test_what_can_only_be_a_path_is_one_beside_a_proxy_url_too(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(bucket))
    for name in (bucket, f"./{os.path.basename(bucket)}", Path(bucket)):
        data = Dataset(name, "http://127.0.0.1:1", conversions=[], selections=["cls"])
        assert len(list(data.load("train-0.tar"))) == 8


def test_path_and_record_to_example_may_be_positional(bucket: str, tmp_path: Path) -> None:
    def to_example(sample: dict[str, Any]) -> tf.train.Example:
        cls = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(sample["cls"])]))
        return tf.train.Example(features=tf.train.Features(feature={"cls": cls}))

    for number, load in enumerate((Dataset(bucket).load, AisDataset(bucket).load_from_tar)):
        made = load("train-0.tar", str(tmp_path / f"{number}.record"), to_example, num_workers=1)
        paths = made if number == 0 else [str(tmp_path / "1.record")]
        assert [sorted(features) for features in examples(*map(Path, paths))] == [["cls"]] * 8


@pytest.mark.parametrize("path", [None, ""])
def test_no_path_and_an_empty_one_mean_in_memory(path: Any, bucket: str, tmp_path: Path) -> None:
    data = AisDataset(bucket, conversions=[], selections=["cls"])
    for made in (data.load("train-0.tar", path), data.load_from_tar("train-0.tar", path)):
        assert len(list(made)) == 8


@pytest.mark.parametrize("to", ["memory", "files"])
def test_an_entry_that_is_too_large_to_decode_is_named_with_what_to_do(to: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("0", {"jpg": b"\xff\xd8" + bytes(10 << 20), "cls": b"1"})])
    load = partial(Dataset(tmp_path / "in").load, max_entry_size="1MB", num_workers=1)
    with pytest.raises(SampleError, match=r"0\.jpg.*the limit is 1,000,000") as caught:
        list(load("a.tar", None if to == "memory" else str(tmp_path / "x.record")))
    assert "max_entry_size" in str(caught.value.hint)


def test_remote_execution_where_there_is_no_cluster_gives_a_warning_and_runs_here(bucket: str, tmp_path: Path) -> None:
    data = Dataset(bucket, conversions=[], selections=["cls"], remote_exec=True)
    pairs = AisDataset(bucket, remote_exec=True)
    loads: list[Callable[[], Any]] = [
        lambda: list(data.load("train-0.tar")),
        lambda: list(pairs.load_from_tar("train-0.tar", record_to_pair=lambda sample: (0, 1))),
        lambda: records(Path(data.load("train-0.tar", str(tmp_path / "x.record"), num_workers=1)[0])),
    ]
    for load in loads:
        with pytest.warns(UserWarning, match="--remote-exec needs inputs in an AIStore cluster") as caught:
            assert len(load()) == 8
        assert caught[0].filename == __file__
    assert len(list(data.load("train-0.tar", remote_exec=False))) == 8


# --- With a path: the very conversion of the command line ---


def test_with_a_path_it_is_the_conversion_of_the_command_line(bucket: str, tmp_path: Path) -> None:
    data = Dataset(bucket, conversions=[Decode("jpg"), Rotate("jpg"), Resize("jpg", (16, 16)), Cast("jpg", "uint8")])
    data.load("train-{0..1}.tar", path=str(tmp_path / "a" / "x-<>"), max_shard_size="8kB", num_workers=2)
    ops = [f"--op={op}" for op in ("decode:jpg", "rotate:jpg", "resize:jpg,16x16", "cast:jpg,uint8")]
    done = tar2tf(
        *["convert", bucket, "train-{0..1}.tar", "-o", tmp_path / "b" / "x-<>", "--max-shard-size", "8kB", *ops],
        *["--select", "jpg,cls"],
    )
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    Dataset(bucket).load("train-0.tar", path=str(tmp_path / "c" / "x"), num_workers=1)
    done = tar2tf("convert", bucket, "train-0.tar", "-o", tmp_path / "d" / "x", "--preset", "image-label")
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "c") == tree(tmp_path / "d")


def test_shuffle_tar_with_a_path_is_shuffle(bucket: str, tmp_path: Path) -> None:
    Dataset(bucket).load(ALL, path=str(tmp_path / "a" / "x"), shuffle_tar=True, num_workers=1)
    command = ["convert", bucket, *ALL, "-o", tmp_path / "b" / "x", "--preset", "image-label", "--shuffle"]
    assert tar2tf(*command).returncode == 0
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


# --- To the letter of the original ---


def label_shard(folder: Path, *labels: bytes, extension: str = "jpg") -> str:
    """A bucket of one shard of small images with these labels."""
    folder.mkdir()
    found = [(f"{number}", {extension: IMAGES[number], "cls": label}) for number, label in enumerate(labels)]
    write_tar(folder / "a.tar", found)
    return str(folder)


def small_pair(sample: dict[str, Any]) -> tuple[Any, Any]:
    return tf.image.resize(tf.io.decode_jpeg(sample["jpg"]), (8, 8)), sample["cls"]


def pairs_of(bucket: str) -> tf.data.Dataset:
    return AisDataset(bucket).load_from_tar("a.tar", record_to_pair=small_pair)


def test_words_stay_strings_and_numbers_are_numbers_in_memory(tmp_path: Path) -> None:
    words = label_shard(tmp_path / "words", b"cat", b"7")
    numbers = label_shard(tmp_path / "numbers", b"3", b"7\n")
    for load in (lambda bucket: Dataset(bucket).load("a.tar"), pairs_of):
        assert [label.numpy() for _, label in load(words)] == [b"cat", b"7"]
        assert [label.numpy() for _, label in load(numbers)] == [3, 7]


def test_a_model_trains_on_pairs_of_a_function_that_takes_the_label_as_it_is(tmp_path: Path) -> None:
    labels = [b"%d" % (number % 3) for number in range(6)]
    train = pairs_of(label_shard(tmp_path / "in", *labels))
    model = tf.keras.Sequential([tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(3)])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert model.fit(train.batch(2).repeat(), steps_per_epoch=3, verbose=0, shuffle=False).history["loss"]


@pytest.mark.parametrize("limit", [{}, {"max_shard_size": 0}])
def test_a_numbered_path_has_no_limit_without_one(tmp_path: Path, limit: dict[str, int], monkeypatch: Any) -> None:
    monkeypatch.setattr("tar2tf_cli.spec.conversion.DEFAULT_SHARD_SIZE", 2000)
    bucket = label_shard(tmp_path / "in", b"1", b"2", b"3")
    path = tmp_path / "x-{}.record"
    assert Dataset(bucket).load("a.tar", path=path, **limit) == [str(tmp_path / "x-1.record")]
    assert next(iter(Dataset(bucket).load("a.tar", **limit)))[1].numpy() == 1  # 0 was the default in memory, too


@pytest.mark.parametrize(
    "conversions",
    [[], [Decode("jpg")], [Decode("jpg"), Convert("jpg", tf.float32)], [Decode("jpg", 1), Resize("jpg", (9, 9))]],
)
def test_the_default_parser_reads_what_conversions_wrote(tmp_path: Path, conversions: list[Any]) -> None:
    data = Dataset(label_shard(tmp_path / "in", b"4\n"), conversions=conversions, selections=["jpg", "cls"])
    paths = data.load("a.tar", path=tmp_path / "x.record")
    ((image, label),) = tf.data.TFRecordDataset(paths).map(default_record_parser).batch(1)
    assert (image.shape, image.dtype, label.numpy()[0], label.dtype) == ((1, 224, 224, 3), tf.float32, 4, tf.int32)
    assert default_record_parser(records(Path(paths[0]))[0])[0].shape == (224, 224, 3)


def test_extensions_in_capitals_match(tmp_path: Path) -> None:
    bucket = label_shard(tmp_path / "in", b"1", extension="JPEG")
    for rule, name in (("first", "JPEG"), ("last", "JPEG"), ("first", "jpeg")):
        conversions = [Decode(name), Rename(Image=name), Resize("Image", (8, 8))]
        data = Dataset(bucket, conversions=conversions, selections=["Image", "cls"], key_split=rule)
        assert data.load("a.tar").element_spec[0].shape == (8, 8, 3)


def test_the_key_rule_is_an_argument(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("1.5", {"txt": b"x"})])
    for rule, name in (("first", "5.txt"), ("last", "txt")):
        data = Dataset(tmp_path, conversions=[], selections=[name], key_split=rule)
        assert next(iter(data.load("a.tar"))).numpy() == b"x"


def test_func_may_be_given_an_extension(bucket: str) -> None:
    data = Dataset(bucket, conversions=[Func(lambda sample: {**sample, "cls": b"9"}, "jpg")], selections=["cls"])
    assert next(iter(data.load(ALL))).numpy() == 9


def test_a_name_that_is_no_folder_is_a_bucket_of_the_cluster_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAR2TF_RETRY_FOR", "0")
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(SourceError, match="ais://photos"):
        AisDataset("photos").load("a.tar")
    label_shard(tmp_path / "photos", b"1")
    assert next(iter(AisDataset("photos").load("a.tar")))[1].numpy() == 1


def test_what_runs_in_the_cluster_can_be_stopped(bucket: str) -> None:
    data = Dataset(bucket)
    train = data.load(ALL)
    data.stop()
    data.stop()
    assert train.element_spec
