"""The inputs: made once in one directory and kept for later runs, with the same bytes on every machine.

Large sets repeat some files as hard links: every process still reads and writes all of them, but making and storing
them is cheaper.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PEERS = Path(__file__).parent / "peers"
SHARDS, DISTINCT = 16, 4  # tars of the JPEG set, and how many of them are distinct
Member = tuple[str, bytes]
Sample = tuple[Member, ...]


@dataclass(frozen=True)
class Dataset:
    """A directory of shards. `payload` is the size of all entries in bytes, without framing."""

    directory: Path
    samples: int
    payload: int

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.directory.rglob("*") if path.is_file() and path.name != "about.json")

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @property
    def template(self) -> str:
        """The files as a template for the command."""
        return "{" + ",".join(path.name for path in self.files) + "}"

    def first(self, share: int) -> FirstFiles:
        """The first of so many equal parts."""
        return FirstFiles(self.directory, self.samples // share, self.payload // share, len(self.files) // share)

    def __str__(self) -> str:
        return f"{self.samples:,} samples in {len(self.files)} files, {self.bytes / 1e6:,.0f} MB"


@dataclass(frozen=True)
class FirstFiles(Dataset):
    """The first few files of a set."""

    number: int = 0

    @property
    def files(self) -> list[Path]:
        return super().files[: self.number]


class Store:
    """The sets in `root`, with their sizes multiplied by `scale`. Each is made on first use."""

    def __init__(self, root: Path, scale: float = 1.0) -> None:
        self.root = root
        self.scale = scale

    def jpeg(self) -> Dataset:
        """32,000 samples of a JPEG of about 50 kB, a class and a JSON document in 16 tars: 1.7 GB."""

        def make(directory: Path) -> tuple[int, int]:
            each = self._scaled(2000)
            samples = jpeg_samples()
            payload = 0
            for shard in range(DISTINCT):
                payload += write_tar(directory / f"train-{shard:04}.tar", islice(samples, each))
            link_up(directory, ".tar")
            return each * SHARDS, payload * SHARDS // DISTINCT

        return self._made(f"jpeg-{self.scale:g}", make)

    def jpeg_gz(self) -> Dataset:
        """The JPEG set as .tar.gz."""
        tars = self.jpeg()

        def make(directory: Path) -> tuple[int, int]:
            for tar in tars.files[:DISTINCT]:
                with (directory / f"{tar.name}.gz").open("wb") as out:
                    subprocess.run([shutil.which("igzip") or "gzip", "-1", "-c", tar], stdout=out, check=True)
            link_up(directory, ".tar.gz")
            return tars.samples, tars.payload

        return self._made(f"jpeg-gz-{self.scale:g}", make)

    def small(self) -> Dataset:
        """80,000 samples of a PNG of about 400 bytes and a class in 8 tars."""

        def make(directory: Path) -> tuple[int, int]:
            each = self._scaled(10_000)
            samples = value_samples("png", pngs())
            tars = [directory / f"train-{shard:04}.tar" for shard in range(8)]
            return each * len(tars), sum(write_tar(tar, islice(samples, each)) for tar in tars)

        return self._made(f"small-{self.scale:g}", make)

    def texts(self) -> Dataset:
        """200,000 samples of a class of 4 bytes and a short text in 8 tars: 410 MB, nearly all of it headers."""

        def make(directory: Path) -> tuple[int, int]:
            each, samples = self._scaled(25_000), text_samples()
            tars = [directory / f"train-{shard:04}.tar" for shard in range(8)]
            return each * len(tars), sum(write_tar(tar, islice(samples, each)) for tar in tars)

        return self._made(f"texts-{self.scale:g}", make)

    def captions(self, samples: int = 80_000, digits: int = 8) -> Path:
        """A CSV file with captions of the small samples, or of so many with longer keys, in another order."""

        def make(directory: Path) -> tuple[int, int]:
            count = self._scaled(samples // 8) * 8
            keys = [f"{number:0{digits}}" for number in range(count)]
            Random(4).shuffle(keys)
            lines = [f"{key},a photo of the sample {key} on a sofa\n" for key in keys]
            (directory / "captions.csv").write_text("key,caption\n" + "".join(lines))
            return count, sum(map(len, lines))

        return self._made(f"captions-{samples}-{digits}-{self.scale:g}", make).files[0]

    def caption_tables(self, captions: Path) -> Dataset:
        """The captions of a CSV file in other forms: with quotes, as JSON Lines, Parquet, and a tar."""

        def make(directory: Path) -> tuple[int, int]:
            import pyarrow as pa
            import pyarrow.parquet as pq

            with captions.open(newline="") as file:
                _, *rows = csv.reader(file)
            with (directory / "quoted.csv").open("w", newline="") as file:
                csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("key", "caption"), *rows])
            objects = [{"key": key, "caption": caption} for key, caption in rows]
            (directory / "captions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
            pq.write_table(pa.Table.from_pylist(objects), directory / "captions.parquet")
            write_tar(directory / "captions.tar", ([(f"{key}.caption", caption.encode())] for key, caption in rows))
            return len(rows), sum(len(caption) for _, caption in rows)

        return self._made(f"{captions.parent.name}-tables", make)

    def keys(self) -> Path:
        """A file with the keys of the small samples, one a line."""

        def make(directory: Path) -> tuple[int, int]:
            count = self._scaled(10_000) * 8
            lines = "".join(f"{number:08}\n" for number in range(count))
            (directory / "keys.txt").write_text(lines)
            return count, len(lines)

        return self._made(f"keys-{self.scale:g}", make).files[0]

    def large_photos(self) -> Dataset:
        """100 samples of a JPEG of 4000x3000, 2.5 MB, and a class in 4 tars."""
        return self._of_values("large-photos", "jpg", camera_jpegs, 25)

    def masks(self) -> Dataset:
        """8,000 samples of a gray PNG of 500x375 with 21 classes, and a class, in 4 tars."""
        return self._of_values("masks", "png", mask_pngs, 2000)

    def webp(self) -> Dataset:
        """2,000 samples of a WebP of 500x375 and a class in 4 tars."""
        return self._of_values("webp", "webp", lambda: webps(4 * self._scaled(500)), 500)

    def wav(self) -> Dataset:
        """16,000 samples of a WAV of a second and a class in 4 tars."""
        return self._of_values("wav", "wav", wavs, 4000)

    def _of_values(self, name: str, entry: str, values: Callable[[], list[bytes]], most: int) -> Dataset:
        """Samples of one value and a class, in 4 tars of as many each."""

        def make(directory: Path) -> tuple[int, int]:
            each = self._scaled(most)
            samples = value_samples(entry, values())
            tars = [directory / f"train-{shard:04}.tar" for shard in range(4)]
            return each * len(tars), sum(write_tar(tar, islice(samples, each)) for tar in tars)

        return self._made(f"{name}-{self.scale:g}", make)

    def tars(self, count: int, megabytes: int) -> Dataset:
        """So many tars of the JPEG samples, of so many megabytes each."""

        def make(directory: Path) -> tuple[int, int]:
            each = self._scaled(round(megabytes * 1e6 / 52_500))
            samples = jpeg_samples()
            names = [directory / f"train-{shard:04}.tar" for shard in range(count)]
            return each * count, sum(write_tar(name, islice(samples, each)) for name in names)

        return self._made(f"tars-{count}x{megabytes}-{self.scale:g}", make)

    def ones(self, tars: int = 2000, size: int = 20_000) -> Dataset:
        """So many tars of one sample of so many bytes."""

        def make(directory: Path) -> tuple[int, int]:
            image, count = jpegs()[0][:size], self._scaled(tars)
            samples = (((f"{number:06}.jpg", image), (f"{number:06}.cls", b"1")) for number in range(count))
            names = [directory / f"train-{number:05}.tar" for number in range(count)]
            return count, sum(write_tar(name, [sample]) for name, sample in zip(names, samples, strict=True))

        return self._made(f"ones-{tars}x{size}-{self.scale:g}", make)

    def records(self, tars: Dataset) -> Dataset:
        """A set of tars as TFRecord files, one per tar, written by the tarfile peer."""

        def make(directory: Path) -> tuple[int, int]:
            first = {path.stat().st_ino: path for path in reversed(tars.files)}
            script = [sys.executable, str(PEERS / "tarfile_script.py"), str(directory)]
            subprocess.run([*script, *map(str, first.values())], check=True, capture_output=True)
            for tar in tars.files:
                record = directory / f"{tar.stem}.record"
                if not record.exists():
                    os.link(directory / f"{first[tar.stat().st_ino].stem}.record", record)
            return tars.samples, tars.payload

        return self._made(f"{tars.directory.name}-records", make)

    def converted(self, tars: Dataset, *options: str) -> Dataset:
        """A set of tars as tar2tf converts it with these options, with the manifest."""

        def make(directory: Path) -> tuple[int, int]:
            command = [sys.executable, "-m", "tar2tf_cli", "convert", str(tars.directory), "-q", *options]
            subprocess.run([*command, "-o", str(directory / "train-<>.record")], check=True)
            return tars.samples, tars.payload

        return self._made("".join([f"{tars.directory.name}-converted", *options]), make)

    def array_records(self, records: Dataset) -> Dataset:
        """A set of TFRecord files as ArrayRecord files, of one record per group, as for random access."""

        def make(directory: Path) -> tuple[int, int]:
            script = [sys.executable, str(PEERS / "record_reading.py"), "array_record", "write", str(directory)]
            subprocess.run([*script, *map(str, records.files)], check=True, capture_output=True)
            return records.samples, records.payload

        return self._made(f"{records.directory.name}-array", make)

    def photos(self) -> Dataset:
        """4,000 JPEGs of about 50 kB in twenty folders, one per class: 200 MB."""

        def make(directory: Path) -> tuple[int, int]:
            images, count = jpegs(), self._scaled(4000)
            for number in range(count):
                path = directory / f"n{number % 20:08}" / f"n{number % 20:08}_{number}.JPEG"
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(images[number % len(images)])
            return count, sum(len(images[number % len(images)]) for number in range(count))

        return self._made(f"photos-{self.scale:g}", make)

    def described(self) -> Dataset:
        """400 arrays of 500 x 600 floats in .npy files, and a list of them as CSV, for 40,000 records: 480 MB."""
        import numpy as np

        def make(directory: Path) -> tuple[int, int]:
            random = np.random.default_rng(4)
            target = self.root / f"described-{self.scale:g}"  # where the folder is going to be
            rows = []
            for number in range(self._scaled(400)):
                np.save(directory / f"{number:04}.npy", random.random((500, 600), dtype=np.float32))
                rows.append(f"{target / f'{number:04}.npy'},{number % 10}\n")
            (directory / "examples.csv").write_text("".join(rows))
            return 100 * len(rows), 500 * 600 * 4 * len(rows)

        return self._made(f"described-{self.scale:g}", make)

    @contextmanager
    def one_tar(self, megabytes: float) -> Iterator[Path]:
        """A temporary tar of JPEG samples, about this large."""
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / f"one-{megabytes:.0f}MB.tar"
        try:
            write_tar(path, islice(jpeg_samples(), round(megabytes * 1e6 / 52_500)))
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _scaled(self, number: int) -> int:
        return max(1, round(number * self.scale))

    def _made(self, name: str, make: Callable[[Path], tuple[int, int]]) -> Dataset:
        """The set `name`; made under another name first, so that a killed run leaves no incomplete set."""
        directory = self.root / name
        about = directory / "about.json"
        if not about.exists():
            print(f"making {directory} ...", file=sys.stderr, flush=True)
            part = directory.with_name(f"{directory.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            samples, payload = make(part)
            (part / about.name).write_text(json.dumps({"samples": samples, "payload": payload}))
            part.rename(directory)
        return Dataset(directory, **json.loads(about.read_text()))


def write_tar(path: Path, samples: Iterable[Sample]) -> int:
    """Write samples to a tar; returns the total size of its members in bytes."""
    payload = 0
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in (member for sample in samples for member in sample):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            payload += len(data)
    return payload


def link_up(directory: Path, suffix: str) -> None:
    for shard in range(DISTINCT, SHARDS):
        os.link(directory / f"train-{shard % DISTINCT:04}{suffix}", directory / f"train-{shard:04}{suffix}")


def jpeg_samples() -> Iterator[Sample]:
    """An endless series of samples that repeats its JPEGs, as only their bytes matter here."""
    images = jpegs()
    number = 0
    while True:
        key, label = f"{number:08}", number % 1000
        about = {"id": number, "label": {"id": label, "name": f"class-{label}"}, "size": [375, 500]}
        yield (
            (f"{key}.jpg", images[number % len(images)]),
            (f"{key}.cls", str(label).encode()),
            (f"{key}.json", json.dumps(about).encode()),
        )
        number += 1


def value_samples(entry: str, values: list[bytes]) -> Iterator[Sample]:
    number = 0
    while True:
        yield (f"{number:08}.{entry}", values[number % len(values)]), (f"{number:08}.cls", b"%d" % (number % 10))
        number += 1


def text_samples() -> Iterator[Sample]:
    """An endless series of samples of a class of 4 bytes and a text of about 32 bytes."""
    for number in count():
        text = f"a small caption of the sample {number}".encode()
        yield (f"{number:09}.cls", b"%04d" % (number % 1000)), (f"{number:09}.txt", text)


@cache
def jpegs() -> list[bytes]:
    """61 distinct JPEGs, 500x375, quality 90, 4:2:0, of about 50 kB."""
    import cv2
    import numpy as np
    import simplejpeg

    random = np.random.default_rng(2)

    def one() -> bytes:
        scene: np.ndarray = cv2.resize(random.uniform(0, 255, (6, 8, 3)), (500, 375), interpolation=cv2.INTER_CUBIC)
        grain = random.normal(0, random.uniform(3, 6), (375, 500, 1))
        pixels = np.clip(scene + grain, 0, 255).astype(np.uint8)
        return bytes(simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling="420"))

    return [one() for _ in range(61)]


@cache
def pngs() -> list[bytes]:
    """997 distinct gray PNGs of 18x18 pixels of noise, about 400 bytes each."""
    import cv2
    import numpy as np

    random = np.random.default_rng(3)
    noise = random.integers(0, 256, (997, 18, 18), np.uint8)
    return [cv2.imencode(".png", image)[1].tobytes() for image in noise]


def camera_jpegs() -> list[bytes]:
    """7 distinct JPEGs, 4000x3000, quality 90, 4:2:0: detail of every size, as in photographs, and a sensor's grain."""
    import cv2
    import numpy as np
    import simplejpeg

    random = np.random.default_rng(6)

    def one(grain: float) -> bytes:
        scene = np.full((3000, 4000, 3), 128, np.float32)
        for level in range(2, 10):
            detail = random.normal(0, 80 / 1.6**level, (3 << level, 4 << level, 3)).astype(np.float32)
            scene += cv2.resize(detail, (4000, 3000), interpolation=cv2.INTER_CUBIC)
        scene += random.normal(0, grain, (3000, 4000, 1)).astype(np.float32)
        return bytes(
            simplejpeg.encode_jpeg(np.clip(scene, 0, 255).astype(np.uint8), quality=90, colorsubsampling="420")
        )

    return [one(grain) for grain in (1, 2, 3, 4, 5, 6, 7)]


def mask_pngs() -> list[bytes]:
    """61 distinct gray PNGs of 500x375 with smooth regions of 21 classes, about 10 kB each."""
    import cv2
    import numpy as np

    random = np.random.default_rng(4)
    scenes = (cv2.resize(random.uniform(0, 21, (9, 12)), (500, 375), interpolation=cv2.INTER_CUBIC) for _ in range(61))
    return [cv2.imencode(".png", np.clip(scene, 0, 20).astype(np.uint8))[1].tobytes() for scene in scenes]


def webps(most: int) -> list[bytes]:
    """The JPEGs, or the first so many of them, as WebP of quality 80."""
    import cv2
    import numpy as np

    images = (cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for data in jpegs()[:most])
    return [cv2.imencode(".webp", image, [cv2.IMWRITE_WEBP_QUALITY, 80])[1].tobytes() for image in images]


def wavs() -> list[bytes]:
    """61 distinct WAVs: one channel, 16 bits, 16,000 samples."""
    import wave

    import numpy as np

    def one(noise: bytes) -> bytes:
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setparams((1, 2, 16_000, 0, "NONE", ""))
            sound.writeframes(noise)
        return file.getvalue()

    random = np.random.default_rng(5)
    return [one(random.integers(-9999, 9999, 16_000, np.int16).tobytes()) for _ in range(61)]
