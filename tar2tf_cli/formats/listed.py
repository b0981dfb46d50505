"""Lists of an example as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


class Listed(np.ndarray[Any, Any]):
    """The values of a list as an array of one dimension, which gets no feature NAME/shape when it is encoded again."""

    listed = True
