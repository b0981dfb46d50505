"""Number of examples hypothesis makes: all with `--hypothesis-profile thorough`, as in CI, otherwise a third.

The same examples each time, so that one commit gives one result. `--hypothesis-profile random` makes as many as
`thorough`, and others each time.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_ON_A_BUSY_MACHINE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("random", **_ON_A_BUSY_MACHINE)
settings.register_profile("thorough", derandomize=True, **_ON_A_BUSY_MACHINE)
settings.register_profile("quick", derandomize=True, max_examples=33, **_ON_A_BUSY_MACHINE)
settings.load_profile("quick")


def example_count(count: int) -> settings:
    """The settings of a property that takes so many examples to be sure of."""
    thorough = settings.get_profile("thorough").max_examples
    return settings(max_examples=max(count * settings().max_examples // thorough, 1))
