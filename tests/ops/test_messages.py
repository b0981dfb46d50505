"""The whole message for an op that is written wrong: the op, the fault, and the form that it has."""

from __future__ import annotations

from typing import Any

import pytest

from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import OPS, parse_op

DTYPES = "'uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'int64', 'float16', 'float32' or 'float64'"
METHODS = (
    "'bilinear', 'nearest', 'area', 'bicubic', 'lanczos3', 'lanczos5', 'gaussian' or 'mitchellcubic'"  # as TensorFlow
)
SIDES = "'center', 'top', 'bottom', 'left', 'right', 'top-left', 'top-right', 'bottom-left', 'bottom-right' or 'random'"
CHANNELS = "0 (those of the file), 1 (gray), 3 (RGB) or indices"
ONE_SIZE = "needs one of 'size', 'short' and 'long'"

WRONG: list[tuple[Any, str]] = [
    ("decode", "needs 'ext'"),
    ("decode:jpg,3,1", "dtype must be 'uint8' or 'uint16', not '1'"),
    ("decode:jpg,3,uint8,1x1,1", "takes at most 4 values"),
    ("decode:jpg,at_least=0", "at_least must be HEIGHTxWIDTH in pixels, not '0'"),
    ("decode:jpg,png", "channels must be a whole number, not 'png'"),
    ("decode:jpg,4", f"channels must be {CHANNELS}, not 4"),
    ("decode:jpg,2", f"channels must be {CHANNELS}, not 2"),
    ("decode:exd=jpg", "has no field 'exd'; did you mean 'ext'?"),
    ("decode:jpg,max=5", "has no field 'max'"),
    ("decode:jpg,ext=png", "has 'ext' twice"),
    ("orient:", "needs 'ext'"),
    ("encode:jpg,gif", "format must be 'jpeg' or 'png', not 'gif'"),
    ("encode:jpg,jpeg,0", "quality must be 1 or more, not 0"),
    ("encode:jpg,jpeg,101", "quality must be 100 or less, not 101"),
    ("encode:jpg,qualitty=9", "has no field 'qualitty'; did you mean 'quality'?"),
    ("convert:jpg", "needs 'dtype'"),
    ("convert:jpg,float31", f"dtype must be {DTYPES}, not 'float31'; did you mean 'float32'?"),
    ("cast:jpg,bool", f"dtype must be {DTYPES}, not 'bool'"),
    ("resize:jpg", ONE_SIZE),
    ("resize:jpg,long=5,short=5", ONE_SIZE),
    ("resize:jpg,short=0", "short must be 1 or more, not 0"),
    ("resize:jpg,0x5", "size must be HEIGHTxWIDTH in pixels, not '0x5'"),
    ("resize:jpg,1x2x3", "size must be HEIGHTxWIDTH in pixels, not '1x2x3'"),
    ("resize:jpg,10,method=cubic", f"method must be {METHODS}, not 'cubic'; did you mean 'bicubic'?"),
    ("resize:size=4x4,jpg", "has 'size' twice"),
    ({"resize": {"ext": "jpg"}}, ONE_SIZE),
    ({"resize": ["jpg", 2, 3]}, f"method must be {METHODS}, not 3"),
    ({"resize": {1: 2}}, "has no field 1"),
    ({"decode": 5}, "ext must be text or a path, not 5"),
    ({"decode": None}, "needs 'ext'"),
    ("pad:jpg", "needs 'size'"),
    ("pad:jpg,4,red", "fill must be a number, not 'red'"),
    ("crop:jpg,4,middle", f"at must be {SIDES}, not 'middle'"),
    ("crop:jpg,0", "size must be HEIGHTxWIDTH in pixels, not '0'"),
    ("center_crop:", "needs 'ext'"),
    ("rotate:jpg,north", "angle must be a number of degrees, not 'north'"),
    ("rotate:jpg,inf", "angle must be a number of degrees, not 'inf'"),
    ("flip:jpg,up", "p must be a number from 0 to 1, not 'up'"),
    ("resample:wav", "needs 'rate'"),
    ("resample:wav,0", "rate must be 1 or more, not 0"),
    ("explode:", "needs 'prefix'"),
    ("rename:jpg", "needs a name before the first source"),
    ("rename:=jpg", "needs a name before the first source"),
    ({"rename": [1]}, "takes a mapping of names to sources"),
    ({"rename": {"image": 5}}, "needs a source or a list of them, not 5"),
    ({"rename": {}}, "needs a name and its sources"),
    ("filter:", "condition must be text or a path, not ''"),
    ("filter:!", "cannot read the condition '!': it takes an entry or a path, and perhaps values"),
    ("filter:cls=", "needs values between commas, not ''; empty text is \"\""),
    ("filter:cls,ge,x", "compares 'cls' with one number, not with 'x'"),
    ("keep:", "needs a rule"),
    ("keep:sufix:png", "does not have the rule 'sufix'; did you mean 'suffix'?"),
    ("drop_empty:jpg", "takes at most 0 values"),
    ("drop_empty:x=1", "has no field 'x'"),
    ("func:", "'' is not MODULE:NAME or FILE.py:NAME"),
    ("func:posixpath", "'posixpath' is not MODULE:NAME or FILE.py:NAME"),
    ("func:posixpath:sep", "'posixpath:sep' is not callable"),
    ("func:posixpath:basenam", "posixpath has no 'basenam'"),
    (
        "func:nowhere_at_all:f",
        "nowhere_at_all cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'",
    ),
    ({"func": {"a": 1}}, "takes MODULE:NAME or FILE.py:NAME, and perhaps args by name, not {'a': 1}"),
]


@pytest.mark.parametrize(("written", "says"), WRONG, ids=lambda value: repr(value)[:40])
def test_a_wrong_op_is_answered_with_its_fault_and_its_form(written: Any, says: str) -> None:
    name = written.partition(":")[0] if isinstance(written, str) else next(iter(written))
    with pytest.raises(UsageError) as caught:
        parse_op(written)
    assert caught.value.sentence == f"{name} {says}; write {OPS[name].usage}"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("resise:jpg,2x2", "there is no op 'resise'; did you mean 'resize'?; ops: {ops}"),
        ("", "there is no op ''; ops: {ops}"),
        ({7: 7}, "there is no op 7; ops: {ops}"),
        ([], "an op is a name, or one name with its fields, not []"),
        (
            {"decode": "jpg", "cast": "jpg"},
            "an op is a name, or one name with its fields, not {{'decode': 'jpg', 'cast': 'jpg'}}",
        ),
    ],
)
def test_what_is_no_op_is_answered_with_all_of_them(written: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_op(written)
    assert caught.value.sentence == says.format(ops=", ".join(OPS))
