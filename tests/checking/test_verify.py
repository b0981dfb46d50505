"""`tar2tf verify`: every kind of damage, made here byte by byte, is found, named and placed; what is whole passes."""

from __future__ import annotations

import errno
import gzip
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tar2tf_cli
from shards import PHOTOS
from tar2tf_cli.checking.inspect import inspect
from tar2tf_cli.checking.verify import verify
from tar2tf_cli.cli import main
from tar2tf_cli.errors import UsageError
from tar2tf_cli.stores import directory
from verify_runs import (
    SEVERAL,
    Ran,
    a_tar,
    an_example,
    check,
    convert,
    faults_of,
    flipped,
    framed,
    in_a_process,
    manifest_of,
    some_examples,
    some_members,
    write,
    write_with_tensorflow,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


# --- Whole files ---


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_what_tensorflow_writes_is_whole(tmp_path: Path, run: Callable[..., Ran], compression: str) -> None:
    path = write_with_tensorflow(tmp_path / "train.record", some_examples(9), compression)
    ran = run(path, "--json")
    assert ran.code == 0
    file = {"path": str(path), "status": "ok", "records": 9, "bytes": path.stat().st_size, "faults": []}
    assert ran.json == {"ok": True, "files": [file], "records": 9}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_what_tarfile_writes_is_whole(
    tmp_path: Path, run: Callable[..., Ran], format: int, compress: Callable[[bytes], bytes]
) -> None:
    names = ["a" * 60 + f"/{number}-ä.{extension}" for number in range(4) for extension in ("cls", "jpg")]
    path = write(tmp_path / "x", compress(a_tar([(name, b"x" * 600) for name in names], format=format)))
    ran = run(path, "--json")
    assert (ran.code, ran.json["records"]) == (0, 4)


def test_the_photographs_are_whole_in_every_form(run: Callable[..., Ran], tmp_path: Path) -> None:
    ran = run(PHOTOS)
    assert (ran.code, ran.out) == (0, "")
    assert "OK: 4 files, 24 samples" in ran.err
    assert "2 files skipped" in ran.err
    assert convert(PHOTOS, "-o", tmp_path / "photos-<>.record", "--records-per-shard", "7").code == 0
    ran = run(tmp_path, *SEVERAL, "--verbose")
    assert (ran.code, ran.out) == (0, "")
    assert "OK: 4 files, 24 records" in ran.err
    assert "photos-4.record: 3 records" in ran.err


def test_quiet_says_nothing_about_what_is_whole(run: Callable[..., Ran]) -> None:
    assert run(PHOTOS, "-q") == (0, "", "")


def test_gzip_members_end_to_end_are_one_shard(tmp_path: Path) -> None:
    parts = [framed(*some_examples(3)), framed(*some_examples(4, 3))]
    found = check(write(tmp_path / "x", b"".join(map(gzip.compress, parts))))
    assert (found.records, found.faults) == (7, [])


def test_a_record_larger_than_any_buffer_is_whole(tmp_path: Path) -> None:
    records = [an_example(x=bytes(40 << 20)), an_example(x=b"small"), an_example(x=bytes(3 << 20))]
    found = check(write_with_tensorflow(tmp_path / "x", records))
    assert (found.records, found.faults) == (3, [])


# --- Directories ---


def test_content_decides_not_the_name(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "a.tar", framed(*some_examples(2)))
    write(tmp_path / "b.record", a_tar(some_members(3)))
    write(tmp_path / "c.txt", gzip.compress(framed(*some_examples(4))))
    write(tmp_path / "d.json", gzip.compress(a_tar(some_members(5))))
    ran = run(tmp_path, "--json")
    assert (ran.code, [file["records"] for file in ran.json["files"]]) == (0, [2, 3, 4, 5])


@pytest.mark.parametrize("length", [0x8B1F, 0x088B1F])
def test_a_first_record_whose_length_looks_like_gzip_is_no_damage(
    tmp_path: Path, run: Callable[..., Ran], length: int
) -> None:
    long = tf.train.Example(features=tf.train.Features(feature={"a": tf.train.Feature()}))
    for filler in range(length - 60, length):
        long.features.feature["a"].bytes_list.value[:] = [bytes(filler)]
        if long.ByteSize() == length:
            break
    path = write(tmp_path / "t.record", framed(long.SerializeToString(), *some_examples(2)))
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    ran = run(path, "--json")
    assert (ran.code, ran.json["ok"], ran.json["records"]) == (0, True, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines, None),
        (lambda lines: [*lines[:3], b"%d %d" % (3 * 40, 2 * 40), *lines[5:]], "line 4 says"),
        (lambda lines: lines[:-1], "a line is missing, but it should be"),
        (lambda lines: [*lines, b"999 1"], "line 10 says '999 1', but there are no more records"),
    ],
    ids=["right", "two lines joined", "a line less", "a line more"],
)
@pytest.mark.parametrize("place", ["folder", "fast", "bucket"])
def test_an_index_beside_a_shard_is_checked(
    tmp_path: Path,
    run: Callable[..., Ran],
    s3_client: Any,
    place: str,
    change: Callable[[list[bytes]], list[bytes]],
    words: str | None,
) -> None:
    records = some_examples(9)
    ends = list(accumulate((len(framed(record)) for record in records), initial=0))
    lines = [b"%d %d" % (start, end - start) for start, end in pairwise(ends)]
    write(tmp_path / "x.record", framed(*records))
    write(tmp_path / "x.record.idx", b"".join(line + b"\n" for line in change(lines)))
    where: Any = tmp_path
    if place == "bucket":
        where = f"s3://i{abs(hash(words)):x}"
        s3_client.create_bucket(Bucket=where[5:])
        for path in tmp_path.iterdir():
            s3_client.upload_file(str(path), where[5:], path.name)
    ran = run(where, "--json", *(["--fast"] if place == "fast" else []))
    assert [kind for *_, kind in faults_of(ran)] == (["index"] if words else [])
    if words:
        assert words in ran.json["files"][0]["faults"][0]["message"]


def test_what_is_not_a_shard_of_a_directory_is_skipped_and_reported(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "train.record", framed(*some_examples(2)))
    write(tmp_path / ".hidden", framed(*some_examples(2)))
    write(tmp_path / "README.md", b"# Read me\n")
    write(tmp_path / "folder" / "x.record", framed(*some_examples(2)))
    ran = run(tmp_path, "--json")
    assert [file["path"] for file in ran.json["files"]] == [str(tmp_path / "train.record")]
    assert "1 file skipped (neither tar nor TFRecord): README.md" in ran.err


@pytest.mark.parametrize("name", ["train-3.record", "other.tar", "other.tfrecord"])
@pytest.mark.parametrize("data", [b"", b"no shard any more " * 40, gzip.compress(bytes(99), mtime=0)[:12]])
def test_a_shard_whose_first_bytes_are_lost_is_not_skipped(
    tmp_path: Path, run: Callable[..., Ran], name: str, data: bytes
) -> None:
    write(tmp_path / "train-1.record", framed(*some_examples(2)))
    write(tmp_path / "train-2.record", framed(*some_examples(2)))
    write(tmp_path / name, data)
    ran = run(tmp_path, "--json")
    assert ran.code == 1
    assert [file["path"] for file in ran.json["files"] if file["faults"]] == [str(tmp_path / name)]


@pytest.mark.parametrize("others", [[], ["README.md", ".hidden.record"], ["folder/train.record"]])
def test_a_directory_without_shards_is_an_error(tmp_path: Path, run: Callable[..., Ran], others: list[str]) -> None:
    for name in others:
        write(tmp_path / name, framed(*some_examples(2)) if "record" in name else b"text")
    ran = run(tmp_path, "--json")
    assert (ran.code, ran.out) == (3, "")
    assert f"{tmp_path}: holds no tar or TFRecord" in ran.err


def test_files_are_reported_in_order_with_any_number_of_workers(tmp_path: Path) -> None:
    for number in range(7):
        records = [framed(record) for record in some_examples(20 * (number % 3) + 2)]
        if number % 2:
            records[1] = flipped(records[1], 20)
        write(tmp_path / f"train-{number}.record", b"".join(records))
    results = [in_a_process("verify", tmp_path, "--json", "-j", workers) for workers in ("1", "2", "5")]
    assert results[0] == results[1] == results[2]
    files = results[0].json["files"]
    assert [Path(file["path"]).name for file in files] == [f"train-{number}.record" for number in range(7)]
    assert [file["status"] for file in files] == ["ok", "damaged"] * 3 + ["ok"]


# --- Exit codes and errors ---


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere",), 3, "no such directory or file"),
        ((PHOTOS, "photos-{7..9}.tar"), 3, "photos-7.tar"),
        ((PHOTOS, "photos-{1..2"), 2, "are not balanced"),
        ((PHOTOS / "photos-0.tar", "*"), 3, "takes no template"),
        (("gopher://bucket",), 2, "gopher"),
        ((PHOTOS, "-j", "0"), 2, "-j"),
        ((), 2, "no bucket is given"),
    ],
)
def test_exit_codes_and_messages(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str | Path], code: int, words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", *map(str, arguments)])
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_a_manifest_takes_no_template(out: Path) -> None:
    with pytest.raises(UsageError, match="takes no template"):
        verify(str(manifest_of(out)), ["*"])


def test_what_may_not_be_read_is_one_fault_among_others(
    tmp_path: Path, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, listed: object) -> Any:
        if path.endswith("x.record"):  # root, as whom tests may run, reads anything
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, listed)

    opened = directory.UnchangedFile
    monkeypatch.setattr(directory, "UnchangedFile", refuse)
    write(tmp_path / "x.record", framed(*some_examples(2)))
    write(tmp_path / "y.record", flipped(framed(*some_examples(2)), 20))
    ran = run(tmp_path, "--json")
    assert (ran.code, faults_of(ran)) == (
        1,
        [("x.record", "damaged", "unreadable"), ("y.record", "damaged", "data_crc")],
    )
    assert "x.record: cannot be opened: Permission denied (unreadable)" in run(tmp_path).out


def test_a_link_that_points_nowhere_is_one_fault_among_others(tmp_path: Path, run: Callable[..., Ran]) -> None:
    write(tmp_path / "x-0.record", framed(*some_examples(2)))
    (tmp_path / "x-1.record").symlink_to(tmp_path / "nowhere")
    for arguments in ((tmp_path,), (tmp_path, "x-*"), sorted(tmp_path.iterdir())):
        ran = run(*arguments, "--json")
        assert (ran.code, faults_of(ran)) == (1, [("x-1.record", "damaged", "unreadable")])
        assert "nowhere" in ran.json["files"][1]["faults"][0]["message"]


def test_a_file_whose_reading_fails_is_a_fault(run: Callable[..., Ran]) -> None:
    ran = run("/proc/self/mem")
    assert ran.code == 1
    assert "/proc/self/mem: offset 0: reading failed" in ran.out


def test_a_shard_on_standard_input_is_checked() -> None:
    data = framed(*some_examples(5))
    assert in_a_process("verify", "-", "--json", stdin=data).json["records"] == 5
    ran = in_a_process("verify", "-", "--json", stdin=gzip.compress(data)[:-1])
    assert (ran.code, ran.json["files"][0]["path"]) == (1, "<stdin>")


def test_a_shard_behind_a_url_is_checked() -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None: ...

    handler = partial(Quiet, directory=str(PHOTOS))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        assert in_a_process("verify", url + "photos-1.tar", "--json").json["records"] == 6
        assert in_a_process("verify", url, "photos-{0,3}.tar*", "--json").code == 2
        ran = in_a_process("verify", url, "photos-{0..2}.tar", "--json")
        assert (ran.code, ran.json["records"], ran.json["files"][2]["path"]) == (0, 18, url + "photos-2.tar")
        assert in_a_process("inspect", url + "photos-3.tar.gz", "--json").json["samples"] == 6
        server.shutdown()


def test_a_name_that_could_steer_a_terminal_is_written_as_escapes(tmp_path: Path) -> None:
    write(tmp_path / "a\x1b[31m\n-1.record", b"")
    ran = in_a_process("verify", tmp_path, "*")
    assert ran.code == 1
    assert ran.lines == [f"{tmp_path}/a\\x1b[31m\\n-1.record: the file is empty (empty)"]


def test_the_output_needs_no_unicode(tmp_path: Path) -> None:
    write(tmp_path / "tränen-1.record", b"")
    ran = in_a_process("verify", tmp_path, "*", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C.UTF-8")
    assert ran.code == 1
    assert "tr\\xe4nen-1.record" in ran.out


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_neither_tensorflow_nor_numpy_nor_requests_is_imported(command: str) -> None:
    code = (
        "import sys\nfrom tar2tf_cli.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(sorted({'tensorflow', 'numpy', 'requests', 'cv2'} & sys.modules.keys()))"
    )
    arguments = [sys.executable, "-c", code, command, str(PHOTOS), "-j", "1"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]")


def test_what_spark_writes_beside_its_shards_is_skipped(tmp_path: Path, run: Callable[..., Ran]) -> None:
    for label in (1, 2):
        write(tmp_path / f"label={label}" / "part-r-00000", framed(*some_examples(3)))
        write(tmp_path / f"label={label}" / ".part-r-00000.crc", b"crc\0")
    write(tmp_path / "_SUCCESS", b"")
    write(tmp_path / "_committed_1", b"{}")
    ran = run(tmp_path, "**/*", "--json")
    assert (ran.code, [file["records"] for file in ran.json["files"]]) == (0, [3, 3])
    assert "2 files skipped (neither tar nor TFRecord): _SUCCESS, _committed_1" in ran.err
    assert run(tmp_path, "_SUCCESS").code == 1


def test_paths_and_one_template_are_taken_as_they_are(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.tar", a_tar([("0.txt", b"1"), ("1.txt", b"2")]))
    assert convert(tmp_path / "in", "-o", tmp_path / "x.record").code == 0
    assert (inspect(tmp_path / "in").samples, inspect(tmp_path / "in", "a.tar").samples) == (2, 2)
    manifest, good = tmp_path / "_x-manifest.json", tmp_path / "good.record"
    assert verify(tmp_path, "*.record").ok
    assert verify(manifest, against=tmp_path / "in").ok
    assert verify(tmp_path / "x.record", salvage=good).ok
    assert good.read_bytes() == (tmp_path / "x.record").read_bytes()
    for wrong in ([str(manifest)], 7, ""):
        with pytest.raises(UsageError, match="bucket must be text or a path, not "):
            verify(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, -3, "many", 1.5])
def test_numbers_of_workers_are_those_that_the_flag_takes(workers: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.tar", a_tar([("0.txt", b"1")]))
    conversion = tar2tf_cli.Conversion(tar2tf_cli.Input(tmp_path), tar2tf_cli.Output(tmp_path / "x.record"))
    for call in (partial(tar2tf_cli.convert, conversion), partial(inspect, tmp_path), partial(verify, tmp_path)):
        with pytest.raises(UsageError, match="workers must be "):
            call(workers=workers)
    assert not (tmp_path / "x.record").exists()


@pytest.mark.parametrize("function", [verify, inspect, partial(tar2tf_cli.diff, b="t")])
def test_an_unknown_option_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'retryfor'"):
        function("t", retryfor=3)
