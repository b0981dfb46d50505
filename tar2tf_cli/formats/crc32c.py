"""CRC-32C (Castagnoli): by the kernel where the processor has an instruction for it, otherwise by google-crc32c."""

from __future__ import annotations

from collections.abc import Callable

from tar2tf_cli.formats import kernel

__all__ = ["extend"]

extend: Callable[[int, bytes], int]
"""Return the CRC of bytes, going on from that of the bytes before them, which is 0 if there are none."""

_native = kernel.native()
if _native and _native.hardware and hasattr(_native, "extend"):
    extend = _native.extend
else:
    import google_crc32c

    extend = google_crc32c.extend
