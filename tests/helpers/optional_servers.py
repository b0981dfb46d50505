"""Skip tests whose server is not installed on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

import pytest

T = TypeVar("T")


@contextmanager
def started(server: AbstractContextManager[T], why: str = "") -> Iterator[T]:
    """Start a server; skip the test if it is not installed or may not be started."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(server)
        except (FileNotFoundError, PermissionError) as error:
            pytest.skip(f"{error}{why}")
        yield found
