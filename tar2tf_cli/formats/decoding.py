"""Decode images, sounds and arrays to NumPy arrays, for the op `decode` and for `verify --decode`."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tar2tf_cli.api.op import DEFAULT_MAX_PIXELS
from tar2tf_cli.errors import ImageError, SampleError, UsageError
from tar2tf_cli.formats import npy
from tar2tf_cli.formats.image import codecs, headers
from tar2tf_cli.formats.streams import is_mp3_frame, riff_chunks, sniff
from tar2tf_cli.structs import NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from soundfile import SoundFile


class ImageOptions(NamedTuple):
    """Options for decoding an image.

    Attributes:
        channels: 1 for gray, 3 for RGB, 0 for the file's own.
        dtype: uint8, or for a PNG uint16.
        max_pixels: the limit of height x width, of all frames together.
        at_least: height and width that a JPEG keeps when it is decoded at 1/2, 1/4 or 1/8 of its size.
        indices: whether to decode a PNG to the indices of its palette.
    """

    channels: int = 0
    dtype: str = "uint8"
    max_pixels: int = DEFAULT_MAX_PIXELS
    at_least: tuple[int, int] | None = None
    indices: bool = False


_HEAD: Final = 1024  # bytes, enough for the name of an npz file's first array

Parts: TypeAlias = "dict[str, Any]"
"""The parts of a value: the value itself has an empty name."""


def decode(data: bytes, wanted: ImageOptions = ImageOptions()) -> Parts:  # noqa: B008
    """Decode an image, sound or array.

    Returns:
        An image: uint8 or uint16 (height, width, channels), or (frames, height, width, channels) for a GIF and an
        animated WebP. Sound: float32 (samples, channels), and its `sample_rate`. An npy: its array. An npz: its arrays
        by name.

    Raises:
        SampleError: another format; damaged, cut short or too large; not an image although `wanted` is for images.
        ValueError: a damaged npy or npz file; PickledError for one of Python objects.
        UsageError: a package is missing.
    """
    kind = sniff(data[:_HEAD])
    decoder = _OTHERS.get(kind or "")
    if decoder is None:
        if kind and not kind.startswith("image/"):
            raise SampleError(f"cannot be decoded: it is {kind}")
        return {"": _image(data, wanted)}
    if wanted.channels or wanted.dtype != "uint8" or wanted.indices:
        raise SampleError(f"it is {kind}, but channels and dtype are only for images")
    return decoder(data)


def can_decode(kind: str) -> bool:
    """Whether values of a kind, as `sniff` names it, can be decoded."""
    return kind in _OTHERS or kind in _IMAGES


def _image(data: bytes, wanted: ImageOptions) -> object:
    if wanted.indices:
        return codecs.decode_indices(data, max_pixels=wanted.max_pixels)
    if wanted.at_least and headers.image_format(data) == "jpeg" and wanted.dtype == "uint8":
        return codecs.decode_jpeg(data, wanted.channels, at_least=wanted.at_least, max_pixels=wanted.max_pixels)
    if not headers.has_frames(data):
        return codecs.decode(data, wanted.channels, dtype=wanted.dtype, max_pixels=wanted.max_pixels)
    if wanted.channels == 1 or wanted.dtype != "uint8":
        raise ImageError("frames are decoded to uint8 of 3 channels, or of 4 with alpha")
    frames = codecs.decode_frames(data, max_pixels=wanted.max_pixels)
    return frames[..., : wanted.channels or None]


def _npy(data: bytes) -> Parts:
    return {"": npy.read_array(data)}


# --- Sound: WAV by numpy, FLAC, Ogg, MP3 and AIFF by libsndfile ---

# Sounds become float32 (samples, channels), with integers scaled to [-1, 1], and `sample_rate` in samples per second.

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_LAST_PAGE: Final = 4
_BLOCK: Final = 1 << 20
_UNKNOWN: Final = 0xFFFFFFFF  # the size in files written to pipes


def decode_wav(data: bytes) -> Parts:
    """Decode a WAV of 8, 16, 24 or 32 bits, or of floats, as `tf.audio.decode_wav` does for 16 bits.

    Samples of n bits are divided by 2^(n-1); 8-bit samples are unsigned, with silence at 128
    (https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html).

    Raises:
        SampleError: another kind of WAV, or one that is cut short or damaged.
    """
    import numpy as np

    form, sound = _wav_chunks(data)
    try:
        code, channels, rate, _, align, bits = struct.unpack_from("<HHIIHH", form)
        if code == _EXTENSIBLE:
            (code,) = struct.unpack_from("<H", form, 24)
    except struct.error:
        raise SampleError("damaged WAV: its format is cut short") from None
    width = bits // 8
    if (code, bits) not in _WAV_DTYPES:
        raise SampleError(f"unsupported WAV: format {code} of {bits} bits; decode knows PCM and floats")
    if not channels or not rate or align != channels * width:
        raise SampleError(f"damaged WAV: {channels} channels of {bits} bits in {align} bytes")
    if len(sound) % align:
        raise SampleError(f"damaged WAV: {len(sound):,} bytes of sound, which is not a multiple of {align}")
    raw = _widen_24_bit(sound) if bits == 24 else np.frombuffer(sound, _WAV_DTYPES[code, bits])
    samples: NDArray[np.float32] = raw.astype(np.float32)
    if code == _PCM:
        samples -= np.float32(128 if bits == 8 else 0)
        samples /= np.float32(2 ** (8 * raw.itemsize - 1))
    return {"": samples.reshape(-1, channels), "sample_rate": rate}


_WAV_DTYPES: Final = {
    (_PCM, 8): "u1", (_PCM, 16): "<i2", (_PCM, 24): "", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4", (_FLOAT, 64): "<f8",
}  # fmt: skip


def _wav_chunks(data: bytes) -> tuple[bytes, memoryview]:
    """Return the format chunk and the data chunk of a WAV."""
    form = b""
    for name, start, size in riff_chunks(data):
        if name == b"fmt ":
            form = data[start : start + size]
        if name == b"data":
            rest, align = len(data) - start, int.from_bytes(form[12:14], "little") or 1
            size = rest - rest % align if size == _UNKNOWN else size
            if start + size > len(data):
                raise SampleError(f"truncated WAV: {size:,} bytes of sound by its header, but {len(data) - start:,}")
            return form, memoryview(data)[start : start + size]
    raise SampleError("truncated WAV: no sound in it")


def _widen_24_bit(sound: memoryview) -> NDArray[np.generic]:
    """Convert 24-bit samples to 32-bit integers, with the sample in the upper 24 bits."""
    import numpy as np

    wide = np.zeros((len(sound) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(sound, np.uint8).reshape(-1, 3)
    return wide.view("<i4")[:, 0]


def decode_with_libsndfile(data: bytes) -> Parts:
    """Decode a FLAC, an Ogg (Vorbis, Opus), an MP3 or an AIFF.

    FLAC and AIFF are lossless: samples of n bits are divided by 2^(n-1). The output of a lossy codec depends on its
    version, and its last bits may differ between CPUs.

    Raises:
        SampleError: damaged or cut short, or a codec that libsndfile lacks.
        UsageError: the package soundfile is not installed.
    """
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: libsndfile is missing
        raise UsageError(
            "FLAC, Ogg, MP3 and AIFF need the package soundfile", hint="pip install 'tar2tf-cli[audio]'"
        ) from None
    if data.startswith(b"OggS"):
        _check_ogg(data)
    elif data.startswith(b"FORM"):
        _check_aiff(data)
    elif sniff(data[:_HEAD]) == "audio/mpeg":
        _check_mp3(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            frames, rate = file.frames, file.samplerate
            samples = _read_in_blocks(file)
    except soundfile.LibsndfileError as error:
        raise SampleError(f"damaged or unsupported sound: {error}") from None
    if len(samples) != frames:
        raise SampleError(f"truncated sound: {len(samples):,} of {frames:,} samples")
    return {"": samples, "sample_rate": rate}


def _read_in_blocks(file: SoundFile) -> NDArray[np.float32]:
    """Read all samples of a sound file block by block, as its header may promise more than fits into memory."""
    import numpy as np

    blocks = [np.zeros((0, file.channels), np.float32)]
    most = max(_BLOCK // file.channels, 1)
    while len(block := file.read(most, dtype="float32", always_2d=True)):
        blocks.append(block)
    return blocks[1] if len(blocks) == 2 else np.concatenate(blocks)


def _check_ogg(data: bytes) -> None:
    """Check every page of an Ogg, and that its last page exists, since libsndfile silently skips damaged pages.

    See RFC 3533, section 6. Its CRC is not bit-reversed, unlike zlib's.
    """
    position = flags = 0
    while position < len(data):
        head = data[position : position + 27]
        table = data[position + 27 : position + 27 + head[26]] if len(head) == 27 else b""
        page = data[position : position + 27 + len(table) + sum(table)]
        if len(head) < 27 or not head.startswith(b"OggS") or len(page) < 27 + head[26] + sum(table):
            raise SampleError(f"truncated or damaged Ogg: its page at byte {position} is incomplete")
        turned = (page[:22] + bytes(4) + page[26:]).translate(_REVERSED)
        crc = int(f"{zlib.crc32(turned, 0xFFFFFFFF) ^ 0xFFFFFFFF:032b}"[::-1], 2)
        if crc != int.from_bytes(page[22:26], "little"):
            raise SampleError(f"damaged Ogg: the CRC of its page at byte {position} does not match")
        flags = head[5]
        position += len(page)
    if not flags & _LAST_PAGE:
        raise SampleError("truncated Ogg: its last page is missing")


_BITRATES: Final = (  # kbit/s by index, of layer III: MPEG 1, and MPEG 2 and 2.5
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
_MPEG_RATES: Final = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}


def _check_aiff(data: bytes) -> None:
    """Check that an AIFF is not cut short, since libsndfile treats a shorter file as complete."""
    size = int.from_bytes(data[4:8], "big")
    if size + 8 > len(data):
        raise SampleError(f"truncated AIFF: {size + 8:,} bytes by its header, but {len(data):,}")


def _check_mp3(data: bytes) -> None:
    """Check that an MP3 is a chain of frames up to its end, since mpg123 silently skips other bytes between frames.

    See ISO 11172-3, 2.4.1.3. ID3 and APE tags may precede and follow the frames.
    """
    position, frames = 0, 0
    if data.startswith(b"ID3"):
        size = data[6:10]
        position = 10 + (size[0] << 21 | size[1] << 14 | size[2] << 7 | size[3]) if len(size) == 4 else len(data)
        while data[position : position + 1] == b"\0":
            position += 1
    while (
        position < len(data)
        and data[position : position + 3] != b"TAG"
        and data[position : position + 8] != b"APETAGEX"
    ):
        length = _mp3_frame(data[position : position + 4])
        if not length:
            raise SampleError(f"damaged MP3: no frame begins at byte {position}")
        if position + length > len(data):
            raise SampleError(f"truncated MP3: its frame at byte {position} is incomplete")
        position += length
        frames += 1
    if not frames:
        raise SampleError("damaged MP3: it has no frame")


def _mp3_frame(head: bytes) -> int:
    """Return the length in bytes of the MP3 frame with a header; 0 if it is not the header of a layer III frame."""
    if len(head) < 4 or not is_mp3_frame(head):
        return 0
    version, index = head[1] >> 3 & 3, head[2] >> 2 & 3
    bitrate = _BITRATES[version != 3][head[2] >> 4]
    return (144 if version == 3 else 72) * 1000 * bitrate // _MPEG_RATES[version][index] + (head[2] >> 1 & 1)


_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


_IMAGES: Final = ("image/jpeg", "image/png", "image/bmp", "image/webp", "image/gif")
_OTHERS: Final[Mapping[str, Callable[[bytes], Parts]]] = {
    "npy": _npy,
    "npz": npy.read_arrays,
    "audio/wav": decode_wav,
    "audio/flac": decode_with_libsndfile,
    "audio/ogg": decode_with_libsndfile,
    "audio/mpeg": decode_with_libsndfile,
    "audio/aiff": decode_with_libsndfile,
}
