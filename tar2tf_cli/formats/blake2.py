"""BLAKE2b, without OpenSSL, which `hashlib` loads in 2 ms."""

from __future__ import annotations

try:
    from _blake2 import blake2b  # what hashlib has, too
except ImportError:
    from hashlib import blake2b

__all__ = ["blake2b"]
