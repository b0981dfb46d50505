"""Test suites for stores, sources, shard formats and ops, built-in ones and those of other packages; need pytest.

Derive a class from a suite in your own test file, and override the fixtures and methods that its docstring names:

    from tar2tf_cli.testing import StoreSuite

    class TestMemory(StoreSuite):
        @pytest.fixture
        def url(self) -> str:
            return "mem://bucket"

Each test's name is a sentence about something on which callers rely.
"""

from __future__ import annotations

from tar2tf_cli.testing.formats import FormatSuite
from tar2tf_cli.testing.ops import OpSuite
from tar2tf_cli.testing.sources import SourceSuite
from tar2tf_cli.testing.stores import StoreSuite

__all__ = ["FormatSuite", "OpSuite", "SourceSuite", "StoreSuite"]
