"""The ops convert, which changes the dtype and scales values, and cast, which keeps values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tar2tf_cli.api.op import OpContext
from tar2tf_cli.formats import image
from tar2tf_cli.ops.base import keyword_aliases, register
from tar2tf_cli.ops.image import ImageOp
from tar2tf_cli.ops.rules import Rule, one_of, rule
from tar2tf_cli.structs import dataclass

if TYPE_CHECKING:
    from tar2tf_cli.api.values import Array


_PYTHON_TYPES: Final = {float: "float32", int: "int32", bool: "bool"}


@rule(enum=list(image.DTYPES))
def _dtype_name(dtype: object, label: str) -> str:
    """Return the name of a dtype, given as a name, a Python type, or a NumPy or TensorFlow dtype."""
    name = _PYTHON_TYPES.get(dtype) if isinstance(dtype, type) else None
    name = name or getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(one_of(*image.DTYPES)(name, label))


@dataclass(frozen=True)
class _DtypeOp(ImageOp):
    checks: ClassVar[Mapping[str, Rule[Any]]] = {"dtype": _dtype_name}

    dtype: Any


@register
class Convert(_DtypeOp):
    """Change the dtype and scale the values.

    The result equals that of `tf.image.convert_image_dtype`.

    >>> parse_op("convert:jpg,float32") == Convert("jpg", "float32")
    True
    """

    name = "convert"
    usage = "convert:EXT,DTYPE"
    examples = ("convert:jpg,float32",)

    def change(self, pixels: Array, key: str, context: OpContext) -> Array:
        return image.convert_dtype(pixels, self.dtype)


@register
class Cast(_DtypeOp):
    """Change the dtype and keep the values.

    Values outside the range of the dtype are clipped, as in `tf.saturate_cast`.

    >>> parse_op("cast:jpg,uint8") == Cast("jpg", "uint8")
    True
    """

    name = "cast"
    usage = "cast:EXT,DTYPE"
    examples = ("cast:jpg,uint8",)

    def change(self, pixels: Array, key: str, context: OpContext) -> Array:
        return image.cast(pixels, self.dtype)


keyword_aliases(_DtypeOp, ext_name="ext", dst_type="dtype")
