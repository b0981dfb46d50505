"""Fuzzers that keep an account of what must come out: tars, documents with one changed value, listings.

`python tests/fuzz/accounts.py tars 600` tries one of them for ten minutes; a seed behind it repeats one
trial. Each trial is a function of a random generator and an empty folder that raises AssertionError where something is
lost or made up.
Errors of tar2tf in words are right answers to bad input; any other exception is a finding.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

sys.path.append(str(Path(__file__).parents[1] / "helpers"))  # when it is run as a program

from servers import QuietHandler, serving
from tar2tf_cli import Conversion, Events, Input, Output, convert, open_records, verify
from tar2tf_cli.errors import SourceError, Tar2tfError
from tar2tf_cli.formats.tfrecord import RecordReader
from tar2tf_cli.inputs.manifest import Manifest
from tar2tf_cli.spec.yaml_file import read as read_spec
from tar2tf_cli.stores import open_source

__all__ = ["TRIALS", "run"]

Trial = Callable[[random.Random, Path], None]
Samples = dict[str, dict[str, bytes]]

_SKIPPED: Final = ("README", "dir.d/", "._a.jpg", "a/._b.txt", "__meta__.json", ".hidden")
"""Names of members that belong to no sample."""


def in_words(error: Tar2tfError) -> None:
    """Refuse an error that is none of ours."""
    assert "bug in tar2tf" not in str(error), error


# --- Tars ---


def tars(rng: random.Random, folder: Path) -> None:
    """A tar of any order, types and headers gives the samples of its account, however it is read."""
    expected = a_tar(rng, folder / "in.tar")
    for name, options in (("plain", {}), ("ops", {"ops": ("drop_empty",)})):
        out = folder / f"{name}.record"
        if not expected:
            continue
        convert(Conversion(Input(folder / "in.tar"), Output(out), on_error="skip", **options), workers=1)
        found = {one.pop("__key__").decode(): one for one in open_records(out)}
        assert [*found] == [*expected], f"{name}: keys {[*found]} instead of {[*expected]}"
        assert found == expected, f"{name}: other bytes"


def damaged(rng: random.Random, folder: Path) -> None:
    """A tar that is cut, or whose header is overwritten, gives samples of its account only, and says what is missing.

    Members of a sample are adjacent: where they are not, nobody can know to which sample a lost one belonged.
    """
    path = folder / "in.tar"
    expected = a_tar(rng, path, scattered=0)
    with tarfile.open(path) as tar:
        members = tar.getmembers()
    offsets = [offset for member in members for offset in (member.offset, member.offset_data - 512)]
    data = bytearray(path.read_bytes())
    how, like_an_end = rng.random(), False
    if how < 0.4:
        del data[rng.randrange(len(data)) :]
    elif how < 0.6 and len(expected) > 1 and len(members) > 1:
        lost, behind = rng.choice([*pairwise(members)])
        zeros = behind.offset - lost.offset
        data[lost.offset : behind.offset] = bytes(zeros)
        like_an_end = zeros == 1024 or behind.offset % 10240 == 0
    else:
        at = rng.choice(offsets)
        zeros = bytes(512) if at < offsets[-1] else b"\1" * 512  # zeros in place of the last header are an end
        data[at : at + 512] = rng.choice([zeros, rng.randbytes(512), b"\xff" * 512])
    path.write_bytes(data)
    for name, options in (("plain", {}), ("ops", {"ops": ("drop_empty",)})):
        out = folder / f"{name}.record"
        try:
            done = convert(Conversion(Input(path), Output(out), on_error="skip", **options), workers=1)
        except Tar2tfError as error:
            in_words(error)
            continue
        found = {one.pop("__key__").decode(): one for one in open_records(out)} if out.exists() else {}
        for key, entries in found.items():
            assert entries == expected.get(key), f"{name}: {key} has {[*entries]}, which its account does not say"
        said = len(found) == len(expected) or done.skipped_samples or like_an_end
        assert said, f"{name}: {len(found)} of {len(expected)}, unsaid"


def a_tar(rng: random.Random, path: Path, scattered: float = 0.3) -> Samples:
    """Write a tar; its account: the samples that must come out, in the order in which their keys first appear."""
    extensions = rng.sample(["jpg", "cls", "txt", "seg.png", "JSON"], rng.randint(1, 4))
    form = rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    keys = [key_name(rng, number, 60 if form == tarfile.USTAR_FORMAT else 120) for number in range(rng.randint(1, 12))]
    members = [(key, extension) for key in keys for extension in extensions]
    if rng.random() < scattered:
        rng.shuffle(members)
    samples: Samples = {}
    faulty: set[str] = set()
    written: dict[str, bytes] = {}
    with tarfile.open(path, "w", format=form) as tar:
        for key, extension in members:
            if rng.random() < 0.15:
                add(tar, rng.choice(_SKIPPED), b"skipped")
            name = f"{key}.{extension}"
            entries = samples.setdefault(key, {})
            kind = rng.random()
            if kind < 0.08 and written:
                target = rng.choice([*written])
                add(tar, name, b"", tarfile.LNKTYPE, target)
                written[name] = entries[extension.lower()] = written[target]
            elif kind < 0.12:
                add(tar, name, b"", rng.choice([tarfile.SYMTYPE, b"Z"]), "elsewhere")
                faulty.add(key)
            else:
                data = rng.randbytes(rng.choice([0, 1, 511, 512, 513, 3000]))
                add(tar, name, data, rng.choice([tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE]))
                written[name] = entries[extension.lower()] = data
    with path.open("ab") as file:
        file.write(bytes(512 * rng.choice([0, 0, 2, 20])))
    return {key: entries for key, entries in samples.items() if key not in faulty}


def key_name(rng: random.Random, number: int, most: int) -> str:
    """A key, short or long, plain or not."""
    stem = rng.choice([f"{number:04}", f"s{number}", f"ä{number}", f"a b{number}", "x" * most + str(number)])
    return rng.choice(["", "train/", "a/b.c/"]) + stem


def add(tar: tarfile.TarFile, name: str, data: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
    """Add a member of a type, which may be a link."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data), link
    tar.addfile(info, io.BytesIO(data))


# --- Documents ---


def documents(rng: random.Random, folder: Path) -> None:
    """After one value of a manifest, its sizes or an index changed, the same command tells or mends it."""
    inputs = folder / "in"
    inputs.mkdir()
    for number in range(3):
        with tarfile.open(inputs / f"{number}.tar", "w") as tar:
            for sample in range(10):
                add(tar, f"{number}-{sample}.txt", rng.randbytes(rng.randint(0, 300)))
    conversion = Conversion(Input(inputs), Output(folder / "out" / "x-<>.record", records_per_shard=7, index=True))
    convert(conversion, workers=1)
    expected = shards_of(folder)
    suffix = rng.choice([".json", ".json", ".sizes", ".idx"])
    changed = rng.choice([path for path in sorted((folder / "out").iterdir()) if path.suffix == suffix])
    data = changed_value(rng, changed.read_bytes())
    is_sealed = changed.suffix == ".json" and rng.random() < 0.5
    changed.write_bytes(sealed(data) if is_sealed else data)
    if changed.suffix == ".idx":
        index_of_no_other_records(changed)
    if rng.random() < 0.75:
        with tarfile.open(inputs / "1.tar", "a") as tar:
            add(tar, "more.txt", b"more")
        (folder / "fresh").mkdir()
        fresh = Conversion(Input(inputs), Output(folder / "fresh" / "x-<>.record", records_per_shard=7, index=True))
        convert(fresh, workers=1)
        expected = shards_of(folder, "fresh")
        how: dict[str, Any] = {"update": True}
    else:
        how = {}
    try:
        verify(str(folder / "out"), workers=1)
        convert(conversion, workers=1, **how)
    except Tar2tfError as error:
        in_words(error)
        return
    assert shards_of(folder) == expected, f"{changed.name} was changed, and other shards were called up to date"
    if how and not (is_sealed or changed.suffix == ".idx"):  # which an update keeps, and verify has told
        assert verify(str(folder / "out")).ok, f"{changed.name} was changed, and a manifest with it"


def index_of_no_other_records(index: Path) -> None:
    """Refuse an index by which another record is read than is there; an error, and the lengths instead, are right."""
    shards = [RecordReader(io.BytesIO(data), name) for name, data in shards_of(index.parent.parent).items()]
    right = [record for shard in shards for _, record in shard]
    with open_records(index.parent / "_x-manifest.json", index_folder="", raw=True) as records:
        for number, record in enumerate(right):
            with contextlib.suppress(Tar2tfError):
                assert records[number] == record, f"{index.name} was changed, and so is record {number}"


def moved_border(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    """An index in which one record ends, and the next begins, at another offset."""
    numbers = [[*map(int, line.split())] for line in lines]
    if len(numbers) > 1:
        place, by = rng.randrange(len(numbers) - 1), rng.choice([-16, -1, 1, 16])
        numbers[place][1] += by
        numbers[place + 1] = [numbers[place + 1][0] + by, numbers[place + 1][1] - by]
    return [b"%d %d\n" % (offset, size) for offset, size in numbers]


def sealed(manifest: bytes) -> bytes:
    """A changed manifest whose checksum of itself is right again, if it is one that can be read."""
    document = json.loads(manifest)
    with contextlib.suppress(Tar2tfError):
        document["checksum"] = json.loads(Manifest.from_bytes(manifest, "x").to_bytes())["checksum"]
    return json.dumps(document).encode()


def journals(rng: random.Random, folder: Path) -> None:
    """After one value in an interrupted run's folder changed, the same command mends it, or says what is wrong."""
    inputs = folder / "in"
    inputs.mkdir()
    for number in range(6):
        with tarfile.open(inputs / f"{number}.tar", "w") as tar:
            for sample in range(10):
                add(tar, f"{number}-{sample}.txt", rng.randbytes(rng.randint(0, 300)))
    path, most = rng.choice([("x-<>.record", 7), ("x-<>-of-<total>.record", 7), ("x-<>.record", 25)])
    options: dict[str, Any] = {"records_per_shard": most, "index": rng.random() < 0.5}
    spec = {"shuffle": rng.random() < 0.3, "ops": rng.choice([(), ("drop_empty",)])}
    fresh, out = folder / "fresh", folder / "out"
    convert(Conversion(Input(inputs), Output(fresh / path, **options), **spec), workers=1)
    conversion = Conversion(Input(inputs), Output(out / path, **options), **spec)
    with contextlib.suppress(Interrupted):
        convert(conversion, workers=1, events=Interrupting(rng.randint(1, 4)))
    left = [file for file in sorted(out.glob(".x-manifest.tar2tf/*")) if file.stat().st_size]
    if left:
        changed = rng.choice(left)
        tear = changed_line if changed.name == "journal" else torn
        changed.write_bytes(tear(rng, changed.read_bytes()))
    try:
        convert(conversion, workers=1)
    except Tar2tfError as error:
        in_words(error)
        return
    assert shards_of(folder) == shards_of(folder, "fresh"), f"{left and changed.name} was changed, and a shard with it"
    assert verify(str(out)).ok, "the shards are right, and the manifest is not"


class Interrupted(Exception):
    """Ends a run."""


class Interrupting(Events):
    """Ends a run after some shards."""

    def __init__(self, shards: int) -> None:
        self.left = shards

    def shard(self, path: str, records: int, size: int) -> None:
        self.left -= 1
        if not self.left:
            raise Interrupted

    def note(self, message: str) -> None: ...


def torn(rng: random.Random, data: bytes) -> bytes:
    """A file of which one byte is another, or that is cut short."""
    at = rng.randrange(len(data))
    return rng.choice([data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :], data[:at]])


def changed_line(rng: random.Random, journal: bytes) -> bytes:
    """A journal of which one byte is another, or one line is gone, comes twice, or is cut short."""
    lines = journal.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    at = rng.randrange(len(lines[place]))
    line = lines[place]
    lines[place] = rng.choice([b"", line * 2, line[:at], line[:at] + bytes([line[at] ^ 4]) + line[at + 1 :]])
    return b"".join(lines)


SPEC: Final[dict[str, Any]] = {
    "input": {"bucket": "in", "template": ["*.tar"], "key_split": "first"},
    "ops": [{"rename": {"text": ["txt"]}}, {"keep": ["text", "cls"]}, "drop_empty"],
    "select": {"text": "text", "label": "cls"},
    "types": {"label": "int64"},
    "shuffle": True,
    "seed": 3,
    "limit": 15,
    "on_error": "fail",
    "output": {"path": "out/x-<>.record", "records_per_shard": 7, "compression": "none", "index": False},
}


def specs(rng: random.Random, folder: Path) -> None:
    """A spec file with one changed value is refused in words, or what it makes is whole, and the same once more."""
    (folder / "in").mkdir()
    with tarfile.open(folder / "in" / "a.tar", "w") as tar:
        for sample in range(20):
            add(tar, f"{sample:02}.txt", rng.randbytes(20))
            add(tar, f"{sample:02}.cls", b"%d" % (sample % 3))
    (folder / "spec.yaml").write_bytes(changed_value(rng, json.dumps(SPEC).encode()))
    before = os.getcwd()
    os.chdir(folder)
    try:
        conversion = read_spec("spec.yaml")
        if conversion.output.is_stream:
            return
        done = convert(conversion, workers=1)
        again = convert(conversion, workers=1)
        assert again.up_to_date, "the same conversion was not known again"
        assert not done.manifest or verify(done.manifest).ok, "what was made is not whole"
    except Tar2tfError as error:
        in_words(error)
    finally:
        os.chdir(before)


def shards_of(folder: Path, name: str = "out") -> dict[str, bytes]:
    """The shards of an output."""
    return {path.name: path.read_bytes() for path in sorted((folder / name).glob("*.record"))}


def changed_value(rng: random.Random, data: bytes) -> bytes:
    """A document of which one value is another, or one line or byte."""
    try:
        whole = json.loads(data)
    except ValueError:
        if b"\0" in data:
            at = rng.randrange(len(data))
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        lines = data.splitlines(keepends=True)
        if rng.random() < 0.5:
            return b"".join(moved_border(rng, lines))
        place = rng.randrange(len(lines))
        lines[place] = rng.choice([b"", lines[place] * 2, lines[place].rstrip(b"\n"), b"0 1\n"])
        return b"".join(lines)
    where = rng.choice([*places(whole)])
    holder, key = where
    holder[key] = rng.choice([another(rng, holder[key]), another(rng, holder[key]), None, [], {}, "x", -1, 2**64])
    return json.dumps(whole).encode()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document that holds a value: its list or dict, and the key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from places(item)


def another(rng: random.Random, value: Any) -> Any:
    """A value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 7])
    if isinstance(value, str):
        return value[:-1] + rng.choice("09az<>/")
    if isinstance(value, list) and value:
        return rng.choice([value[:-1], value + value[-1:], value[::-1]])
    return value


# --- Stores ---

NAMES: Final = [f"p-{number:04}.tar" for number in range(25)]
_PAGE: Final = 10


def stores(rng: random.Random, folder: Path) -> None:
    """A listing of several pages, one answer of which is something else, is whole or an error."""
    kind, left = rng.choice(["s3", "gs", "az", "ais"]), rng.choice([1, 1, 100])
    wrong_at = rng.randrange(3)

    class Server(QuietHandler):
        asked = 0
        wrong = left

        def do_HEAD(self) -> None:
            self.reply(b"")

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}") if length else {}
            pages = {"s3": s3_page, "gs": s3_page, "az": az_page}
            first, page = ais_page(body) if kind == "ais" else pages[kind](self.path)
            if first <= wrong_at * _PAGE < first + _PAGE and Server.wrong > 0:
                Server.wrong -= 1
                page = something_else(rng, page)
            self.reply(page)

        def reply(self, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with serving(Server) as url:
        try:
            found = [item.name for item in open_source(f"{kind}://bucket", endpoint=url, retry_for=0).list(["p-*.tar"])]
        except SourceError:
            return
    assert found == NAMES, f"{len(found)} of {len(NAMES)} names, and no error"


def s3_page(path: str) -> tuple[int, bytes]:
    """A page of ListObjectsV2."""
    query = parse_qs(urlsplit(path).query)
    first = int(query.get("continuation-token", ["0"])[0])
    behind = query.get("start-after", [""])[0]
    first = max(first, sum(name <= behind for name in NAMES))
    names = NAMES[first : first + _PAGE]
    more = first + _PAGE < len(NAMES)
    about = f'<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"{"0" * 32}"</ETag><Size>1</Size>'
    contents = "".join(f"<Contents><Key>{name}</Key>{about}</Contents>" for name in names)
    token = f"<NextContinuationToken>{first + _PAGE}</NextContinuationToken>" if more else ""
    text = (
        '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name>'
        f"<KeyCount>{len(names)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>{contents}{token}</ListBucketResult>"
    )
    return first, text.encode()


def az_page(path: str) -> tuple[int, bytes]:
    """A page of List Blobs."""
    first = int(parse_qs(urlsplit(path).query).get("marker", ["0"])[0])
    names = NAMES[first : first + _PAGE]
    about = "<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified><Etag>0x1</Etag>"
    about += "<Content-Length>1</Content-Length><Content-Type>application/octet-stream</Content-Type>"
    blobs = "".join(f"<Blob><Name>{name}</Name><Properties>{about}</Properties></Blob>" for name in names)
    marker = str(first + _PAGE) if first + _PAGE < len(NAMES) else ""
    text = f"<Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker>"
    return first, f'<?xml version="1.0"?><EnumerationResults>{text}</EnumerationResults>'.encode()


def ais_page(body: dict[str, Any]) -> tuple[int, bytes]:
    """A page of AIStore's listing."""
    first = int((body.get("value") or {}).get("continuation_token") or 0)
    names = NAMES[first : first + _PAGE]
    token = str(first + _PAGE) if first + _PAGE < len(NAMES) else ""
    entries = [{"name": name, "size": "1", "version": "1"} for name in names]
    return first, json.dumps({"uuid": "u", "entries": entries, "continuation_token": token, "flags": 0}).encode()


def something_else(rng: random.Random, page: bytes) -> bytes:
    """What a proxy, a broken connection or a server in trouble may answer with 200."""
    return rng.choice(
        [
            b"",
            b"{}",
            b"[]",
            b"null",
            b"<html><body>sign in</body></html>",
            b'<?xml version="1.0"?><Error><Code>InternalError</Code></Error>',
            page[: rng.randrange(len(page))],
            page[rng.randrange(1, len(page)) :],
            page.replace(b"<IsTruncated>true</IsTruncated>", b"").replace(b'"continuation_token"', b'"other"'),
        ]
    )


CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_REGION": "us-east-1",
    "AZURE_STORAGE_ACCOUNT_NAME": "x",
    "AZURE_STORAGE_ACCOUNT_KEY": "eHh4",
}
"""Variables with which clouds are asked; no server of these trials looks at them."""

TRIALS: Final[dict[str, Trial]] = {
    trial.__name__: trial for trial in (tars, damaged, documents, journals, specs, stores)
}


def run(name: str, seconds: float, seed: int | None = None) -> int:
    """Make trials for some seconds, or the one with this seed; returns how many there were."""
    end, count = time.monotonic() + seconds, 0
    while count == 0 or (seed is None and time.monotonic() < end):
        number = random.randrange(1 << 32) if seed is None else seed
        folder = Path(tempfile.mkdtemp(prefix="tar2tf-fuzz-"))
        try:
            TRIALS[name](random.Random(number), folder)
        except Exception as error:
            raise AssertionError(f"{error}; repeat it with: python tests/fuzz/accounts.py {name} 0 {number}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        count += 1
    return count


if __name__ == "__main__":
    os.environ.setdefault("TAR2TF_RETRY_FOR", "0")
    os.environ.update(CREDENTIALS)
    print(run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None), "trials")
