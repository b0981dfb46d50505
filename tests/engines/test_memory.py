"""What an engine does to the memory of the process it runs in."""

from __future__ import annotations

import resource

from tar2tf_cli.engines.base import keep_memory


def test_memory_that_is_kept_is_not_filled_with_zeros_for_every_run() -> None:
    for _ in range(2):
        keep_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    keep_memory()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1_000
