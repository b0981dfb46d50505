"""numpy, OpenCV and libjpeg-turbo, imported by the first call that needs them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import cv2
    import numpy as np
    import simplejpeg
    from numpy.typing import NDArray

    Image: TypeAlias = NDArray[Any]
else:

    class _OnFirstUse:
        """Stands in for a module, imports it on first access of an attribute, and caches the attribute."""

        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module(self._module), name)
            setattr(self, name, value)
            return value

    cv2, np, simplejpeg = _OnFirstUse("cv2"), _OnFirstUse("numpy"), _OnFirstUse("simplejpeg")
    Image = NDArray = Any

__all__ = ["Image", "NDArray", "cv2", "np", "simplejpeg"]
