"""Image folders: classes and labels, order, what is no image, presets as TensorFlow computes them."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import shutil
from collections import deque
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from commands import convert, tar2tf
from interruptions import kill_once_published
from shards import examples, samples, shards_in, tree, write_tar
from tar2tf_cli import open_records
from tar2tf_cli.errors import NothingFoundError, SourceError, UsageError
from tar2tf_cli.features import labels as labels_module
from tar2tf_cli.features.labels import Label, load_labels, number_classes, parse_labels, to_bytes
from tar2tf_cli.inputs import base
from tar2tf_cli.inputs.kinds.imagefolder import ImageFolderSource
from tar2tf_cli.inputs.report import InputReport

CLASSES = ("n02", "n01", "n10")


def jpeg(seed: int, height: int = 60, width: int = 80) -> bytes:
    random = np.random.default_rng(seed)
    pixels = cv2.resize(random.integers(0, 256, (7, 9, 3), np.uint8), (width, height))
    return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=90)


def make(folder: Path, each: int = 6) -> Path:
    """Three classes of JPEGs of different shapes, some in folders below."""
    for place, name in enumerate(CLASSES):
        (folder / name / "more").mkdir(parents=True)
        for number in range(each):
            path = folder / name / ("more" if number % 3 == 2 else "") / f"{name}_{number}.JPEG"
            path.write_bytes(jpeg(1000 * place + number, 50 + 3 * (number % 12), 90 - 4 * (number % 15)))
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make(tmp_path / "photos")


def run(photos: Path, *args: str | Path, **options: object):
    return convert("--from", "imagefolder", photos, *args, **options)


def values(*paths: Path, name: str) -> list[object]:
    return [example[name][0] for example in examples(*paths)]


def names_of(*paths: Path) -> list[str]:
    return [name.decode() for name in values(*paths, name="image/filename")]


# --- Files, classes and order ---


def test_each_file_is_an_example_in_sorted_order(photos, tmp_path):
    run(photos, "-o", tmp_path / "all.record")
    files = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.JPEG"))
    found = examples(tmp_path / "all.record")
    assert [example["__key__"][0].decode() + ".JPEG" for example in found] == files
    assert [example["image"][0] for example in found] == [(photos / name).read_bytes() for name in files]
    assert [example["label"][0] for example in found] == [sorted(CLASSES).index(name[:3]) for name in files]
    assert {example["synset"][0].decode() for example in found} == set(CLASSES)
    assert [example["filename"][0].decode() for example in found] == [name.rpartition("/")[2] for name in files]


def test_files_are_shuffled_and_the_first_limit_taken_in_shards_equal_within_one(photos, tmp_path):
    options = ["--preset", "imagenet", "--num-shards", "4", "--limit", "14", "--shuffle"]
    run(photos, "-o", tmp_path / "one" / "train-<00000>-of-<total>", *options, "--seed", "1")
    shards = shards_in(tmp_path / "one", "train-*-of-*")
    assert [path.name for path in shards] == [f"train-{number:05}-of-00004" for number in range(4)]
    assert sorted(len(examples(path)) for path in shards) == [3, 3, 4, 4]
    whole = tmp_path / "whole.record"
    run(photos, "-o", whole, "--preset", "imagenet", "--shuffle", "--seed", "1")
    assert names_of(*shards) == names_of(whole)[:14]
    other = tmp_path / "other.record"
    run(photos, "-o", other, "--preset", "imagenet", "--shuffle", "--seed", "2")
    assert names_of(whole) != names_of(other)
    assert sorted(names_of(whole)) == sorted(names_of(other)) == sorted(path.name for path in photos.rglob("*.JPEG"))
    assert names_of(whole) != sorted(names_of(whole))


@pytest.mark.parametrize("options", [[], ["--shuffle"], ["--compression", "gzip"], ["--split", "a=0.5,b=0.5"]])
def test_bytes_are_the_same_for_any_number_of_workers(tmp_path, options):
    photos = make(tmp_path / "photos", each=40)
    name = "<split>-<>.record" if "--split" in options else "t-<>.record"
    trees = []
    for workers in ("1", "2", "3"):
        out = tmp_path / f"out-{workers}"
        options = [*options, "--preset", "imagenet-tensor", "--image-size", "16", "--records-per-shard", "28"]
        run(photos, "-o", out / name, *options, "-j", workers)
        trees.append(tree(out))
    assert trees[0] == trees[1] == trees[2]
    assert len(trees[0]) >= 5 + 2


def test_a_killed_run_continues_and_a_finished_one_does_nothing(tmp_path):
    photos = make(tmp_path / "photos", each=60)
    options = ["--preset", "imagenet-tensor", "--image-size", "32", "--records-per-shard", "50", "--shuffle"]
    run(photos, "-o", tmp_path / "whole" / "t-<>.record", *options)
    out = tmp_path / "killed"
    arguments = ["convert", "--from", "imagefolder", photos, "-o", out / "t-<>.record", *options]
    kill_once_published("t-1.record", *arguments)
    again = tar2tf(*arguments)
    assert again.returncode == 0, again.stderr
    assert tree(out) == tree(tmp_path / "whole")
    assert "up to date" in tar2tf(*arguments).stderr
    os.utime(photos / "n01" / "n01_0.JPEG", (1, 1))
    changed = tar2tf(*arguments)
    assert changed.returncode == 2
    assert "made from other inputs" in changed.stderr


def test_another_label_map_is_another_conversion(photos, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("n01\nn02\nn10\n")
    arguments = ["--from", "imagefolder", photos, "-o", tmp_path / "t.record", "--labels", labels]
    convert(*arguments)
    labels.write_text("n02\nn01\nn10\n")
    changed = tar2tf("convert", *arguments)
    assert changed.returncode == 2
    convert(*arguments, "--overwrite")
    assert json.loads((tmp_path / "_t-labels.json").read_text())["n02"]["label"] == 0


def test_hidden_files_and_names_of_no_image_are_counted_and_stray_images_too(photos, tmp_path):
    (photos / "n01" / ".DS_Store").write_bytes(b"x")
    (photos / "n01" / "._n01_0.JPEG").write_bytes(b"x")
    (photos / ".git").mkdir()
    (photos / "n02" / "notes.txt").write_bytes(b"x")
    (photos / "stray.jpg").write_bytes(jpeg(1))
    done = run(photos, "-o", tmp_path / "t.record", "--json")
    skipped = {"hidden": 3, "not in a class folder": 1, "no image suffix": 1}
    assert json.loads(done.stdout)["skipped"] == {"samples": 0, "members": skipped}
    assert json.loads((tmp_path / "_t-manifest.json").read_text())["skipped"]["members"] == skipped


def test_links_to_folders_are_followed_but_never_in_circles(photos, tmp_path):
    (photos / "n99").symlink_to(photos / "n01", target_is_directory=True)
    (photos / "n01" / "up").symlink_to(photos, target_is_directory=True)
    run(photos, "-o", tmp_path / "t.record")
    assert len(examples(tmp_path / "t.record")) == 24


def test_pipes_are_skipped_and_dangling_links_are_faulty_samples(photos, tmp_path):
    os.mkfifo(photos / "n01" / "pipe.jpg")
    (photos / "n01" / "gone.jpg").symlink_to("nowhere.jpg")
    command = ["convert", "--from", "imagefolder", photos, "-o", tmp_path / "t.record"]
    done = tar2tf(*command)
    assert (done.returncode, "n01/gone.jpg: is a link to a file that does not exist" in done.stderr) == (3, True)
    done = tar2tf(*command, "--on-error", "skip")
    assert (done.returncode, "1 sample skipped" in done.stderr) == (1, True)
    assert "1 member skipped: pipe or device" in done.stderr
    assert len(examples(tmp_path / "t.record")) == 18


def test_a_template_chooses_files_without_numbering_classes_anew(photos, tmp_path):
    run(photos, "n10/*", "-o", tmp_path / "t.record")
    found = examples(tmp_path / "t.record")
    assert len(found) == 4
    assert {example["label"][0] for example in found} == {2}


def test_a_folder_without_folders_of_images_is_an_error(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(jpeg(1))
    done = tar2tf("convert", "--from", "imagefolder", tmp_path / "photos", "-o", tmp_path / "t.record")
    assert done.returncode == 3
    assert "one folder for each class" in done.stderr
    done = tar2tf("convert", "--from", "imagefolder", tmp_path / "nowhere", "-o", tmp_path / "t.record")
    assert done.returncode == 3
    assert "no such directory" in done.stderr
    done = tar2tf("convert", "--from", "imagefolder", tmp_path / "photos" / "a.jpg", "-o", tmp_path / "t.record")
    assert (done.returncode, "a.jpg: is not a folder" in done.stderr) == (3, True)


def test_names_that_are_no_unicode_come_through(tmp_path):
    folder = os.fsencode(tmp_path / "photos") + b"/class"
    os.makedirs(folder)
    with open(folder + b"/\xff\xfe.jpg", "wb") as file:
        file.write(jpeg(1))
    run(tmp_path / "photos", "-o", tmp_path / "t.record", "--preset", "imagenet")
    assert values(tmp_path / "t.record", name="image/filename") == [b"\xff\xfe.jpg"]


# --- Labels ---

MAP = {
    "n01": {"label": 7, "human_labels": "tench, Tinca tinca"},
    "n02": {"label": 3, "human_labels": "goldfish"},
    "n10": {"label": 0, "human_labels": ""},
    "n77": {"label": 12, "human_labels": "not here"},
}


def write_map(folder: Path, form: str) -> Path:
    path = folder / form
    text = json.dumps(MAP)
    if form.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif form.endswith(".json"):
        path.write_text(text)
    else:
        path.write_text("n10\tten\nn02\ttwo words\nn77\nn01\n" if form == "texts.tsv" else "n10\nn02\n\nn77\nn01\n")
    return path


@pytest.mark.parametrize("form", ["labels.json", "labels.json.gz", "texts.tsv", "names.txt"])
def test_labels_come_in_every_form_and_the_map_used_serves_again(photos, tmp_path, form):
    path = write_map(tmp_path, form)
    run(photos, "-o", tmp_path / "one" / "t.record", "--preset", "imagenet", "--labels", path)
    expected = {name: (item["label"], item["human_labels"]) for name, item in MAP.items()}
    if form == "texts.tsv":
        expected = {"n10": (0, "ten"), "n02": (1, "two words"), "n77": (2, ""), "n01": (3, "")}
    elif form == "names.txt":
        expected = {"n10": (0, ""), "n02": (1, ""), "n77": (3, ""), "n01": (4, "")}  # the blank line counts
    found = examples(tmp_path / "one" / "t.record")
    assert len(found) == 18
    for example in found:
        number, text = expected[example["image/class/synset"][0].decode()]
        assert example["image/class/label"] == [number]
        assert example["image/class/text"] == [text.encode()]
    written = tmp_path / "one" / "_t-labels.json"
    used = {name: {"label": number, "human_labels": text} for name, (number, text) in expected.items()}
    assert json.loads(written.read_text()) == used
    run(photos, "-o", tmp_path / "two" / "t.record", "--preset", "imagenet", "--labels", written)
    assert (tmp_path / "two" / "_t-labels.json").read_bytes() == written.read_bytes()
    assert (tmp_path / "two" / "t.record").read_bytes() == (tmp_path / "one" / "t.record").read_bytes()


def test_without_a_map_classes_are_numbered_in_sorted_order_and_written_out(photos, tmp_path):
    run(photos, "-o", tmp_path / "train-<00000>-of-<total>", "--num-shards", "2")
    written = json.loads((tmp_path / "_train-labels.json").read_text())
    assert written == {name: {"label": number, "human_labels": ""} for number, name in enumerate(sorted(CLASSES))}


def test_a_folder_that_the_map_does_not_know_is_an_error(photos, tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("n01\nn02\n")
    done = tar2tf("convert", "--from", "imagefolder", photos, "-o", tmp_path / "o" / "t.record", "--labels", path)
    assert done.returncode == 2
    assert "does not have n10" in done.stderr
    assert not (tmp_path / "o").exists()
    run(photos, "n0*/**/*", "-o", tmp_path / "o" / "t.record", "--labels", path)


def test_a_label_map_of_another_form_says_how_it_is_written(photos, tmp_path):
    (tmp_path / "labels.csv").write_text("n01,a,0\nn02,b,1\nn10,c,2\n")
    options = ("-o", tmp_path / "t.record", "--labels", tmp_path / "labels.csv")
    done = tar2tf("convert", "--from", "imagefolder", photos, *options)
    assert (done.returncode, "write lines of CLASS, CLASS<TAB>TEXT or CLASS<TAB>N, JSON" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "has no classes"),
        ("a\nb\na\n", "line 3 of the label map repeats 'a'"),
        ("a\n\twords\n", "line 2"),
        ('{"a": {"number": 3}}', "the class 'a' has no label"),
        ('{"a": {"label": "3"}}', "not a whole number"),
        ('{"a": {"label": true}}', "not a whole number"),
        ('{"a": {"label": 1}, "a": {"label": 2}}', "has 'a' twice"),
        ('{"a": {"label": 1, "human_labels": 5}}', "not text"),
        ('{"a": \n}', "line 2"),
        ('["a", 5]', "lists 5, which is not the name of a class"),
        ('["a", "a"]', "has 'a' twice"),
    ],
)
def test_a_faulty_label_map_says_what_is_wrong(tmp_path, text, fault):
    path = tmp_path / "labels"
    path.write_text(text)
    with pytest.raises(UsageError, match=fault):
        load_labels(path)


def test_a_damaged_label_map_cannot_be_read(tmp_path):
    path = tmp_path / "labels.json.gz"
    path.write_bytes(gzip.compress(json.dumps(MAP).encode())[:-9])
    with pytest.raises(SourceError, match="damaged"):
        load_labels(path)
    with pytest.raises(SourceError, match="No such file"):
        load_labels(tmp_path / "nowhere")


def test_a_map_written_is_read_as_it_was():
    labels = {"b": Label(1, "ä\tb"), "a": Label(1, ""), "c": Label(-5, "x")}
    assert parse_labels(to_bytes(labels).decode()) == labels
    assert list(number_classes(["b", "a", "B"])) == ["B", "a", "b"]


def test_labels_in_the_way_are_not_overwritten(photos, tmp_path):
    (tmp_path / "_t-labels.json").write_text("mine")
    done = tar2tf("convert", "--from", "imagefolder", photos, "-o", tmp_path / "t.record")
    assert done.returncode == 2
    assert "_t-labels.json" in done.stderr
    assert (tmp_path / "_t-labels.json").read_text() == "mine"
    assert not (tmp_path / "t.record").exists()
    run(photos, "-o", tmp_path / "t.record", "--overwrite")
    assert json.loads((tmp_path / "_t-labels.json").read_text())["n01"]["label"] == 0


def test_the_map_goes_with_the_manifest_that_named_it(photos, tmp_path):
    run(photos, "-o", tmp_path / "out" / "t.record")
    assert json.loads((tmp_path / "out" / "_t-manifest.json").read_text())["documents"] == ["_t-labels.json"]
    convert(write_tar(tmp_path / "a.tar", samples(3)), "-o", tmp_path / "out" / "t.record", "--overwrite")
    assert list(tree(tmp_path / "out")) == ["_t-manifest.json", "t.record"]
    assert "documents" not in json.loads((tmp_path / "out" / "_t-manifest.json").read_text())


# --- ImageNet ---


def folder_of(classes: list[str], path: Path) -> Path:
    for number, name in enumerate(classes):
        (path / name).mkdir(parents=True)
        (path / name / f"{name}_{number}.JPEG").write_bytes(jpeg(number, 20, 20))
    return path


SYNSETS = {"n01440764": (0, "tench, Tinca tinca"), "n02123045": (281, "tabby, tabby cat")}
SYNSETS["n15075141"] = (999, "toilet tissue, toilet paper, bathroom tissue")


@pytest.mark.parametrize("options", [[], ["--labels", "imagenet"]])
def test_synsets_of_imagenet_have_its_labels_and_texts(tmp_path, options):
    photos = folder_of(list(SYNSETS), tmp_path / "photos")
    run(photos, "-o", tmp_path / "t.record", "--preset", "imagenet", *options)
    found = examples(tmp_path / "t.record")
    assert {
        item["image/class/synset"][0].decode(): (item["image/class/label"][0], item["image/class/text"][0].decode())
        for item in found
    } == SYNSETS
    written = load_labels(tmp_path / "_t-labels.json")
    assert written == load_labels("imagenet")
    assert [label.number for label in written.values()] == list(range(1000))
    assert list(written) == sorted(written)
    assert all(label.text for label in written.values())


def test_a_stray_folder_next_to_synsets_is_an_error_that_says_how_to_leave_it_out(tmp_path):
    photos = folder_of([*SYNSETS, "zebra"], tmp_path / "photos")
    done = tar2tf("convert", "--from", "imagefolder", photos, "-o", tmp_path / "t.record")
    assert (done.returncode, "has zebra next to folders of ImageNet's synsets" in done.stderr) == (2, True)
    assert "'n*/*'" in done.stderr
    run(photos, "n*/*", "-o", tmp_path / "t.record", "--preset", "imagenet")
    found = examples(tmp_path / "t.record")
    assert {item["image/class/label"][0] for item in found} == {number for number, _ in SYNSETS.values()}
    done = tar2tf("convert", "--from", "imagefolder", photos, "-o", tmp_path / "u.record", "--labels", "imagenet")
    assert (done.returncode, "the label map does not have zebra" in done.stderr) == (2, True)


def test_synsets_of_a_larger_imagenet_are_numbered_in_sorted_order(tmp_path):
    photos = folder_of(["n00004475", "n02123045"], tmp_path / "photos")
    run(photos, "-o", tmp_path / "t.record")
    assert load_labels(tmp_path / "_t-labels.json") == {"n00004475": Label(0), "n02123045": Label(1)}


def test_a_file_named_imagenet_is_given_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imagenet").write_text("cat\ndog\n")
    assert load_labels("./imagenet") == {"cat": Label(0), "dog": Label(1)}


def test_the_license_of_wordnet_stands_beside_its_words():
    folder = Path(labels_module.__file__).parent
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in (folder / "imagenet.LICENSE.txt").read_text()


# --- A folder a level too high ---


@pytest.mark.parametrize("splits", [["train", "val"], ["Validation", "extra"], ["test"], ["eval", "valid"]])
@pytest.mark.parametrize("options", [[], ["--labels", "imagenet"], ["--dry-run"]])
def test_folders_named_as_splits_are_an_error_with_the_command_that_works(tmp_path, splits, options):
    for name in splits:
        folder_of(list(SYNSETS), tmp_path / "my photos" / name)
    place = tmp_path / "my photos"
    done = tar2tf("convert", "--from", "imagefolder", place, "-o", tmp_path / "o" / "t.record", *options)
    assert done.returncode == 2
    assert f"has the folder {splits[0]!r}, which is named like a split" in done.stderr
    assert f"tar2tf convert --from imagefolder '{place}/{splits[0]}' ..." in done.stderr
    assert not (tmp_path / "o").exists()
    run(place / splits[0], "-o", tmp_path / "o" / "t.record")


def parent_of_splits(folder: Path) -> Path:
    """Photos of three classes for training, of two for validation, one file beside classes, and some without any."""
    make(folder / "train", each=60)
    make(folder / "val", each=4)
    for path in (folder / "val" / "n02").rglob("*.JPEG"):
        path.unlink()
    (folder / "val" / "n20").mkdir()
    (folder / "val" / "n20" / "new.JPEG").write_bytes(jpeg(9))
    (folder / "val" / "alone.JPEG").write_bytes(jpeg(10))
    return folder


@pytest.mark.parametrize(
    "options", [(), ("--shuffle", "--seed", "2"), ("--num-shards", "3"), ("--max-shard-size", "90kB")]
)
def test_a_parent_of_splits_gives_all_of_them_with_the_same_labels_for_any_number_of_workers(tmp_path, options):
    place = parent_of_splits(tmp_path / "photos")
    for workers in ("1", "3"):
        out = tmp_path / workers / "pets-<split>-<00000>.record"
        done = run(place, "-o", out, "-j", workers, *options)
        assert "not in a class folder" in done.stderr
    assert tree(tmp_path / "1") == tree(tmp_path / "3")
    labels = {"n01": 0, "n02": 1, "n10": 2, "n20": 3}
    manifest = json.loads((tmp_path / "1" / "_pets-manifest.json").read_text())
    for split in ("train", "val"):
        shards = [shard["path"] for shard in manifest["shards"] if shard["split"] == split]
        assert shards == [path.name for path in shards_in(tmp_path / "1", f"pets-{split}-*.record")]
        if "--num-shards" in options:
            assert len(shards) == 3
        found = examples(*(tmp_path / "1" / name for name in shards))
        keys = [example["__key__"][0].decode() for example in found]
        files = [path for path in (place / split).rglob("*.JPEG") if path.parent != place / split]
        assert sorted(keys) == sorted(str(path.relative_to(place))[:-5] for path in files)
        assert (keys == sorted(keys)) == ("--shuffle" not in options)
        assert [example["label"][0] for example in found] == [labels[key.split("/")[1]] for key in keys]


def test_both_splits_load_and_an_update_of_one_gives_what_a_new_run_gives(tmp_path):
    place = parent_of_splits(tmp_path / "photos")
    command = (place, "-o", tmp_path / "a" / "<split>-<>.record", "--records-per-shard", "20")
    run(*command)
    assert {name: len(open_records(tmp_path / "a", split=name)) for name in ("train", "val")} == {
        "train": 180,
        "val": 9,
    }
    assert "up to date" in run(*command).stderr
    (place / "val" / "n20" / "other.JPEG").write_bytes(jpeg(11))
    done = run(*command, "--update")
    assert "(9 kept)" in done.stderr
    run(place, "-o", tmp_path / "b" / "<split>-<>.record", "--records-per-shard", "20")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_nothing_is_said_of_members_that_were_not_skipped(tmp_path):
    for split in ("train", "val"):
        make(tmp_path / "photos" / split, each=1)
    done = run(tmp_path / "photos", "-o", tmp_path / "out" / "<split>-<>.record")
    assert "skipped" not in done.stderr
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["skipped"]["members"] == {}


def test_a_path_with_split_needs_folders_named_like_splits(tmp_path):
    place = make(tmp_path / "photos")
    done = tar2tf("convert", "--from", "imagefolder", place, "-o", tmp_path / "<split>-<>.record")
    assert done.returncode == 2
    assert "has the folder 'n01', which is not named like a split" in done.stderr
    assert "--split train=0.9,val=0.1" in done.stderr
    (tmp_path / "flat" / "train").mkdir(parents=True)
    (tmp_path / "flat" / "train" / "a.JPEG").write_bytes(jpeg(1))
    done = tar2tf("convert", "--from", "imagefolder", tmp_path / "flat", "-o", tmp_path / "<split>-<>.record")
    assert done.returncode == 2
    assert "has no folders of images in 'train'" in done.stderr


def test_the_dry_run_of_splits_estimates_the_shards_of_each(tmp_path):
    place = parent_of_splits(tmp_path / "photos")
    options = ("--num-shards", "3", "--dry-run", "--json")
    document = json.loads(run(place, "-o", tmp_path / "<split>-<>.record", *options).stdout)
    assert document["estimate"]["shards"] == 6
    assert document["estimate"]["records"] == 189


def test_folders_that_hold_only_folders_are_an_error_with_the_command_that_works(tmp_path):
    for name in ("2012", "2013"):
        folder_of(["cat", "dog"], tmp_path / "photos" / name)
    done = tar2tf("convert", "--from", "imagefolder", tmp_path / "photos", "-o", tmp_path / "t.record")
    assert done.returncode == 2
    assert "its folders contain only folders: '2012' would be a class" in done.stderr
    assert f"tar2tf convert --from imagefolder {shlex.quote(f'{tmp_path}/photos/2012')} ..." in done.stderr
    assert not (tmp_path / "t.record").exists()
    (tmp_path / "photos" / "2012" / "0.JPEG").write_bytes(jpeg(0))
    run(tmp_path / "photos", "-o", tmp_path / "t.record")


def test_a_label_map_can_say_that_test_is_a_class(tmp_path):
    (tmp_path / "labels.txt").write_text("exam\ntest\n")
    photos = folder_of(["exam", "test"], tmp_path / "photos")
    run(photos, "-o", tmp_path / "t.record", "--labels", tmp_path / "labels.txt")
    assert sorted(values(tmp_path / "t.record", name="label")) == [0, 1]


def test_summary_and_dry_run_say_how_many_classes_there_are_and_name_a_few(photos, tmp_path):
    done = run(photos, "-o", tmp_path / "t.record")
    assert "3 classes: n01, n02, n10\n" in done.stderr
    arguments = ["convert", "--from", "imagefolder", photos, "-o", tmp_path / "u.record"]
    assert "3 classes: n01, n02, n10\n" in tar2tf(*arguments, "--dry-run").stdout
    assert "1 class: n01\n" in tar2tf(*arguments, "n01/*", "--dry-run").stdout
    folder_of(["n11", "n12"], photos)
    assert "5 classes: n01, n02, n10, …\n" in tar2tf(*arguments, "--dry-run").stdout


# --- Images that are not what their name says ---


def pillow(mode: str, format: str, size: tuple[int, int] = (40, 30), **options: object) -> bytes:
    channels = {"CMYK": 4, "RGBA": 4, "L": 1, "RGB": 3}[mode]
    pixels = cv2.resize(np.random.default_rng(5).integers(0, 256, (4, 5, channels), np.uint8), size)
    out = io.BytesIO()
    Image.fromarray(pixels.squeeze(), mode).save(out, format, **options)
    return out.getvalue()


@pytest.mark.parametrize("preset", ["imagenet", "imagenet-tensor"])
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_png_named_jpeg_and_cmyk_become_rgb_by_their_content(tmp_path, preset):
    import tensorflow as tf

    folder = tmp_path / "photos" / "class"
    folder.mkdir(parents=True)
    odd = {
        "cmyk.JPEG": pillow("CMYK", "JPEG", quality=95),
        "png.JPEG": pillow("RGBA", "PNG"),
        "gray.JPEG": pillow("L", "JPEG"),
        "bitmap.jpg": pillow("RGB", "BMP"),
    }
    for name, data in odd.items():
        (folder / name).write_bytes(data)
    run(tmp_path / "photos", "-o", tmp_path / "t.record", "--preset", preset)
    found = examples(tmp_path / "t.record")
    assert len(found) == len(odd)
    for example in found:
        data = odd[example["image/filename"][0].decode()]
        expected = tf.io.decode_image(data, channels=0).numpy()
        expected = expected[..., :3] if expected.shape[2] >= 3 else expected[..., :1].repeat(3, axis=2)
        encoded = example["image/encoded"][0]
        if preset == "imagenet":
            assert encoded.startswith(b"\xff\xd8\xff")
            found = tf.io.decode_jpeg(encoded, channels=3).numpy()
            expected = tf.io.decode_jpeg(tf.io.encode_jpeg(expected, quality=100)).numpy()
        else:
            found = np.frombuffer(encoded, np.uint8).reshape(expected.shape)
        np.testing.assert_array_equal(found, expected)
        assert example["image/colorspace"] == [b"RGB"]
        assert example["image/channels"] == [3]


@pytest.mark.parametrize("preset", ["imagenet", "imagenet-tensor", None])
def test_what_no_decoder_takes_is_named_and_under_the_error_policy(photos, tmp_path, preset):
    (photos / "n01" / "n01_3.JPEG").write_bytes(b"<html>not found</html>")
    (photos / "n02" / "n02_0.JPEG").write_bytes(b"")
    options = ["--preset", preset] if preset else []
    if preset:
        (photos / "n10" / "n10_1.JPEG").write_bytes(jpeg(1)[:-200])
    arguments = ["convert", "--from", "imagefolder", photos, "-o", tmp_path / "t.record", *options]
    done = tar2tf(*arguments)
    assert done.returncode == 3
    assert "n01/n01_3.JPEG" in done.stderr
    assert not (tmp_path / "t.record").exists()
    errors = tmp_path / "errors.jsonl"
    done = tar2tf(*arguments, "--on-error", "skip", "--errors", errors, "--overwrite")
    assert done.returncode == 1
    named = [json.loads(line)["member"] for line in errors.read_text().splitlines()]
    assert named == ["n01/n01_3.JPEG", "n02/n02_0.JPEG", *(["n10/n10_1.JPEG"] if preset else [])]
    assert len(examples(tmp_path / "t.record")) == 18 - len(named)


# --- imagenet-tensor, as TensorFlow computes it ---

FEATURES = {
    "image/height",
    "image/width",
    "image/colorspace",
    "image/channels",
    "image/class/label",
    "image/class/synset",
    "image/class/text",
    "image/format",
    "image/filename",
    "image/encoded",
}


def in_tensorflow(data: bytes, size: int) -> np.ndarray:
    import tensorflow as tf

    pixels = tf.io.decode_jpeg(data, channels=3)
    side = min(pixels.shape[0], pixels.shape[1])
    pixels = tf.image.resize_with_crop_or_pad(pixels, side, side)
    return tf.cast(tf.image.resize(pixels, [size, size]), tf.uint8).numpy()


@pytest.mark.parametrize("size", [32, 75])
def test_a_tensor_is_what_tensorflow_decodes_crops_resizes_and_casts(photos, tmp_path, size):
    run(photos, "-o", tmp_path / "t.record", "--preset", "imagenet-tensor", "--image-size", str(size))
    files = {path.name: path.read_bytes() for path in photos.rglob("*.JPEG")}
    found = examples(tmp_path / "t.record")
    assert len(found) == len(files) == 18
    for example in found:
        assert set(example) == FEATURES
        assert example["image/height"] == example["image/width"] == [size]
        assert example["image/channels"] == [3]
        assert example["image/colorspace"] == [b"RGB"]
        assert example["image/format"] == [b"tensor"]
        found = np.frombuffer(example["image/encoded"][0], np.uint8).reshape(size, size, 3)
        expected = in_tensorflow(files[example["image/filename"][0].decode()], size)
        difference = np.abs(found.astype(int) - expected)
        assert difference.max() <= 1  # where the two computations fall on either side of a whole number
        assert (difference > 0).mean() < 0.01


def test_the_documented_example_parses_tensors_with_decode_raw(photos, tmp_path, monkeypatch):
    from readme import block

    output = tmp_path / "folder" / "train-<00000>-of-<total>"
    run(photos, "-o", output, "--preset", "imagenet-tensor", "--image-size", "300")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(block("imagefolder", "docs/reference/image-folders.md"), names)
    images, labels = zip(*names["train"].as_numpy_iterator(), strict=True)
    assert {image.shape[1:] for image in images} == {(300, 300, 3)}
    assert {image.dtype.name for image in images} == {"uint8"}
    assert sorted(np.concatenate(labels).tolist()) == [0] * 6 + [1] * 6 + [2] * 6


# --- With everything else ---


def test_ops_select_and_types_work_as_for_tars(photos, tmp_path):
    ops = ["--op", "decode:image", "--op", "resize:image,8x8", "--op", "cast:image,uint8"]
    run(photos, "-o", tmp_path / "t.record", *ops, "--select", "image,y=label", "--type", "y=float")
    found = examples(tmp_path / "t.record")
    assert len(found) == 18
    for example in found:
        assert set(example) == {"image", "image/shape", "y"}
        assert len(example["image"][0]) == 192
        assert example["y"][0] in (0.0, 1.0, 2.0)


def test_a_spec_file_says_the_same_as_the_flags(photos, tmp_path):
    labels = write_map(tmp_path, "labels.json")
    run(photos, "-o", tmp_path / "one" / "t.record", "--labels", labels, "--preset", "imagenet")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"input: {{bucket: {photos}, from: imagefolder, labels: {labels}}}\n"
        f"output: {{path: {tmp_path}/two/t.record}}\npreset: imagenet\n"
    )
    convert("--spec", spec)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    again = json.loads((tmp_path / "one" / "_t-manifest.json").read_text())["spec"]
    again["output"]["path"] = str(tmp_path / "three" / "t.record")
    spec.write_text(json.dumps(again))
    convert("--spec", spec)
    assert tree(tmp_path / "one") == tree(tmp_path / "three")
    spec.write_text(f"input: {{bucket: {photos}, from: imagefolde}}\noutput: {{path: t.record}}\n")
    done = tar2tf("convert", "--spec", spec)
    assert done.returncode == 2
    assert "spec.yaml:1:" in done.stderr
    assert "imagefolder" in done.stderr


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--labels", "labels.json"], "--from imagefolder"),
        (["--from", "imagefolder", "--regroup"], "only for tars"),
        (["--from", "imagefolder", "--example-arg", "a=1"], "--from examples"),
    ],
)
def test_options_of_other_kinds_of_input_are_refused(photos, tmp_path, options, fault):
    done = tar2tf("convert", photos, "-o", tmp_path / "t.record", *options)
    assert done.returncode == 2
    assert fault in done.stderr


@pytest.mark.parametrize("kind", [["imagefolder"], ["examples", "--example-class", "toy.py:Toy"]])
def test_a_url_is_no_image_folder_and_no_list(tmp_path, kind):
    done = tar2tf("convert", "s3://bucket/photos", "-o", tmp_path / "t.record", "--from", *kind)
    assert done.returncode == 2
    assert "reads local files, not the URL s3://bucket/photos" in done.stderr


def test_verify_finds_it_whole_and_inspect_shows_it(photos, tmp_path):
    run(photos, "-o", tmp_path / "out" / "t-<>.record", "--preset", "imagenet-tensor", "--image-size", "8")
    for what in (tmp_path / "out", tmp_path / "out" / "_t-manifest.json"):
        assert tar2tf("verify", what).returncode == 0
    assert json.loads(tar2tf("inspect", tmp_path / "out", "--json").stdout)["samples"] == 18


def test_a_file_that_changes_while_it_is_read_is_noticed(photos, tmp_path):
    from tar2tf_cli.conversion.plan import make_plan
    from tar2tf_cli.flow.sample_flow import InputFlow, ReadPlan
    from tar2tf_cli.spec.conversion import Conversion, Input, Output

    plan = make_plan(Conversion(Input(str(photos), kind="imagefolder"), Output(str(tmp_path / "t.record"))))
    (photos / "n01" / "n01_0.JPEG").write_bytes(jpeg(1, 20, 20))
    how = ReadPlan.of(plan.work, plan.source)
    with InputFlow(how, plan.inputs[0]) as reading, pytest.raises(SourceError, match="changed"):
        list(reading.records())


def test_inputs_are_chunks_of_a_fixed_size(tmp_path):
    from tar2tf_cli.conversion.plan import make_plan
    from tar2tf_cli.spec.conversion import Conversion, Input, Output

    photos = make(tmp_path / "photos", each=100)
    plan = make_plan(Conversion(Input(str(photos), kind="imagefolder"), Output(str(tmp_path / "t.record"))))
    assert [item.name for item in plan.inputs] == ["files 1-128", "files 129-256", "files 257-300"]
    assert base.CHUNK == 128


def test_a_label_map_that_is_nested_too_deep_is_an_error() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_labels('{"a": ' + "[" * 100_000)


def test_folders_that_cannot_be_images_are_refused_in_whole_sentences(photos, tmp_path):
    def refused(*templates, folder=photos, **options):
        with pytest.raises((SourceError, UsageError)) as raised:
            ImageFolderSource(str(folder), **options).list(templates)
        return type(raised.value), raised.value.message, raised.value.shard, raised.value.hint

    one = "there must be one folder for each class"
    empty = tmp_path / "empty"
    (empty / "n01").mkdir(parents=True)
    (empty / "a.jpg").write_bytes(b"x")
    assert refused(folder=empty) == (SourceError, "has no folders of images", str(empty), one)
    hint = "compare the template with the names of the files that are there"
    assert refused("x*/*") == (NothingFoundError, "has no 'x*/*'", str(photos), hint)
    assert refused(folder=tmp_path / "none") == (SourceError, "no such directory", str(tmp_path / "none"), None)
    assert refused(folder=empty / "a.jpg") == (SourceError, "is not a folder", str(empty / "a.jpg"), None)
    hint = "image folders are read from a local disk"
    assert refused(folder="s3://bucket") == (SourceError, "no such directory", "s3://bucket", hint)
    message = "has the folder 'n01', which is not named like a split, but the output path has <split>"
    hint = "leave out <split>, divide the images with --split train=0.9,val=0.1, or rename the folder"
    assert refused(by_split=True) == (UsageError, message, str(photos), hint)
    (tmp_path / "splits" / "train").mkdir(parents=True)
    (tmp_path / "splits" / "train" / "a.jpg").write_bytes(b"x")
    what = "has no folders of images in 'train'"
    assert refused(folder=tmp_path / "splits", by_split=True) == (UsageError, what, str(tmp_path / "splits"), one)
    labels = tmp_path / "labels.txt"
    labels.write_text("n01\nn02\n")
    what = f"the label map does not have n10, which are folders of {photos}"
    hint = "add them, or name the folders to convert with a template such as 'n01*/*'"
    assert refused(labels=str(labels)) == (UsageError, what, str(labels), hint)
    assert [*ImageFolderSource(str(photos), labels=str(labels)).list(["n0*/*"])]
    labels.write_text("a\nb\n")
    what, hint = f"the label map does not have n01, n02, n10, which are folders of {photos}", labels_module.FORMS
    assert refused(labels=str(labels)) == (UsageError, what, str(labels), hint)


def test_what_is_no_image_file_is_counted_by_its_reason(photos):
    (photos / ".hidden").mkdir()
    (photos / "n01" / ".a.jpg").touch()
    (photos / "n01" / "notes.txt").touch()
    (photos / "stray.jpg").touch()
    (photos / "n01" / "again").symlink_to(photos / "n01")
    os.mkfifo(photos / "n01" / "pipe.png")
    source = ImageFolderSource(str(photos))
    (item,) = source.list(())
    info = source.listing_info()
    assert source.skipped == {"hidden": 2, "no image suffix": 1, "not in a class folder": 1, "pipe or device": 1}
    assert (info.samples, info.classes) == (18, ["n01", "n02", "n10"])
    assert item.size == sum(path.stat().st_size for path in photos.rglob("*.JPEG") if "again" not in path.parts)


def test_an_image_that_cannot_be_read_is_an_error(photos):
    source = ImageFolderSource(str(photos))
    (item,) = source.list(())
    shutil.rmtree(photos / "n02")
    (photos / "n02").symlink_to("n02")
    with pytest.raises(SourceError) as raised:
        deque(source.samples(item, InputReport(), pytest.fail), maxlen=0)
    assert str(raised.value) == f"{photos}/n02/more/n02_2.JPEG: cannot be read: Too many levels of symbolic links"


def test_content_that_is_no_image_is_a_fault_that_says_what_it_is(photos):
    (photos / "n01" / "a.jpg").write_bytes(b"text")
    (photos / "n01" / "b.jpg").write_bytes(b"")
    (photos / "n01" / "c.jpg").symlink_to("none")
    (photos / "n01" / "d.jpg").symlink_to("d.jpg")
    source, faults = ImageFolderSource(str(photos)), []
    (item,) = source.list(["n01/?.jpg"])
    assert [*source.samples(item, InputReport(), faults.append)] == []
    assert [(fault.key, fault.member) for fault in faults] == [(f"n01/{name}", f"n01/{name}.jpg") for name in "abcd"]
    assert [fault.message for fault in faults] == [
        "its content is not an image: it begins with 74 65 78 74",
        "its content is not an image: it is empty",
        "is a link to a file that does not exist",
        "is a link to a file that does not exist",
    ]


def test_a_folder_of_images_that_cannot_be_listed_is_named(photos, monkeypatch):
    listed = os.scandir

    def refusing(path):
        if str(path).endswith("n02"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(SourceError) as raised:
        ImageFolderSource(str(photos)).list(())
    assert str(raised.value) == f"{photos}/n02: cannot be listed: Permission denied"
