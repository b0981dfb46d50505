"""Whether a GIF is whole: its codes are followed, but no pixels are made. https://www.w3.org/Graphics/GIF/spec-gif89a.txt"""

from __future__ import annotations

from typing import Final

__all__ = ["check_gif"]

_IMAGE: Final = 0x2C
_EXTENSION: Final = 0x21
_END: Final = 0x3B
_CUT: Final = "it is cut short"
_MOST_CODES: Final = 4096


def check_gif(data: bytes) -> None:
    """Follow a GIF to its end, through every frame; like other readers, do without the byte that marks the end.

    Raises:
        ValueError: when it is cut short or damaged; says which frame is.
    """
    frames = 0
    try:
        table = _table_size(data[10])
        position = 13 + table
        while position < len(data) and data[position] != _END:
            kind = data[position]
            if kind == _IMAGE:
                position = _frame(data, position, table)
                frames += 1
            elif kind == _EXTENSION:
                _, position = _blocks(data, position + 2)
            else:
                raise ValueError(f"there is neither a frame nor an extension at byte {position}")
        if not frames:
            raise ValueError("it has no frame" if position < len(data) else _CUT)
    except IndexError:
        raise ValueError(f"{_CUT} in frame {frames}") from None


def _table_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _blocks(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the content of sub-blocks, and the position behind them."""
    parts = []
    while size := data[position]:
        parts.append(data[position + 1 : position + 1 + size])
        position += 1 + size
    return b"".join(parts), position + 1


def _frame(data: bytes, position: int, table: int) -> int:
    """Check a frame, and return the position behind it; `table` is the size of the table of colours for all frames."""
    width, height = (int.from_bytes(data[position + at : position + at + 2], "little") for at in (5, 7))
    own = _table_size(data[position + 9])
    position += 10 + own
    least = data[position]
    codes, end = _blocks(data, position + 1)
    if not 1 <= least <= 11:
        raise ValueError(f"a frame has codes of {least} bits")
    if (pixels := _pixels(codes, least, width * height, (own or table) // 3)) < width * height:
        raise ValueError(f"a frame has {pixels:,} of its {width * height:,} pixels")
    return end


def _pixels(codes: bytes, least: int, most: int, colors: int) -> int:
    """Return how many pixels compressed data stand for; counting ends at `most`.

    Raises:
        ValueError: at a code that has no meaning yet, or is not among the colours.
    """
    clear = 1 << least
    lengths = [1] * (clear + 2)
    width, pixels, last = least + 1, 0, 0  # last: how many pixels the code before stands for; 0 behind a clear code
    number = bits = 0
    for byte in codes:
        number |= byte << bits
        bits += 8
        while bits >= width:
            code = number & (1 << width) - 1
            number >>= width
            bits -= width
            if code == clear:
                del lengths[clear + 2 :]
                width, last = least + 1, 0
                continue
            if code == clear + 1 or pixels >= most:
                return pixels
            if last and len(lengths) < _MOST_CODES:
                lengths.append(last + 1)
            if code >= len(lengths) or colors <= code < clear:
                raise ValueError(f"a frame has an invalid code after {pixels:,} of its {most:,} pixels")
            last = lengths[code]
            pixels += last
            if len(lengths) == 1 << width < _MOST_CODES:
                width += 1
    return pixels
