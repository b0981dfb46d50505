"""The array type for the values of an example's list."""

from __future__ import annotations

from typing import Any

import numpy as np


class Listed(np.ndarray[Any, Any]):
    """A one-dimensional array of a list's values, which gets no feature NAME/shape when it is encoded again."""

    listed = True
