"""The kernel under the address sanitizer, on random tars for some seconds: `python tests/helpers/fuzz_kernel.py 60`.

It exits with 0 if nothing was found. Every tar is a `bytes` object of its own, so that a byte read too far is noticed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from makers import header, member, pax  # noqa: E402

NAMES = [
    b"a.jpg",
    b"a.cls",
    b"b.jpg",
    b"b.JPG",
    b"c.x.y",
    b".jpg",
    b"no",
    b"d/e.f",
    b"k" * 97 + b".a",
    b"\xff.jpg",
    b"\xc3\xbc.a",
]


def a_tar(random: random.Random) -> bytes:
    """Members of which most are plain, with a few bytes changed and the end cut off."""
    members = []
    for number in range(random.randrange(40)):
        names = [b"%03d.%s" % (number, name) for name in (b"jpg", b"cls", b"txt", b"json")[: random.randrange(1, 5)]]
        if random.random() < 0.1:
            names = [random.choice(NAMES)]
        if random.random() < 0.02:
            names = [b"%03d.%d" % (number, entry) for entry in range(40)]
        if random.random() < 0.3:
            members.append(pax({random.choice(["mtime", "atime", "path", "x"]): str(random.random())}))
        members += [member(name, random.randbytes(random.choice([0, 1, 300, 512, 2000, 33_000]))) for name in names]
    if random.random() < 0.3:
        members.insert(0, header(random.randbytes(100), random.randbytes(12), checksum="{:06o}\0 "))
    data = bytearray(b"".join(members) + bytes(1024))
    for _ in range(random.choice([0, 0, 1, 2, 8])):
        place = random.randrange(len(data))
        data[place // 512 * 512 + place % 257 if random.random() < 0.7 else place] = random.randrange(256)
    return bytes(data[: random.randrange(len(data)) if random.random() < 0.5 else len(data)])


def fuzz(native: ModuleType, seconds: float) -> None:
    seed, made, end = time.time_ns(), 0, time.monotonic() + seconds
    print(f"seed {seed}", flush=True)
    generator = random.Random(seed)
    rounds = 0
    while time.monotonic() < end:
        data = a_tar(generator)
        place = generator.randrange(512)
        while place <= len(data):
            found = native.records(data, place, *generator.choices([0, 1], k=2), b"001.jpg")
            if type(found) is tuple:
                place = found[-1]
                made += len(found[1]) // 8
            else:
                place = place // 512 * 512 + 512
        native.crc32c(data[: generator.randrange(40)], generator.random() < 0.5)
        rounds += 1
    print(f"{rounds:,} tars, {made:,} records, nothing found")


def main() -> int:
    path = os.environ.get("FUZZED_KERNEL")
    if path:
        spec = spec_from_file_location("_native", path)
        assert spec is not None
        assert spec.loader is not None
        native = module_from_spec(spec)
        spec.loader.exec_module(native)
        fuzz(native, float(sys.argv[1]))
        return 0
    from tar2tf_cli.formats.kernel.build import compiled

    source = Path(__file__).parents[2] / "tar2tf_cli" / "formats" / "kernel" / "kernel.c"
    library = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "_native.abi3.so")
        flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        subprocess.run(compiled(source, target, *flags), check=True)
        environment = {
            "FUZZED_KERNEL": str(target),
            "LD_PRELOAD": library.strip(),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        }
        return subprocess.run([sys.executable, *sys.argv], env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
