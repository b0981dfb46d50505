"""How many examples hypothesis makes: all with `--hypothesis-profile thorough`, as CI does, and a third otherwise."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("thorough", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=33)
settings.load_profile("quick")


def example_count(count: int) -> settings:
    """The settings of a property that takes so many examples to be sure of."""
    thorough = settings.get_profile("thorough").max_examples
    return settings(max_examples=max(count * settings().max_examples // thorough, 1))
