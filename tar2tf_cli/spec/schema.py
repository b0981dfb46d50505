"""The JSON Schema of spec files, made from the fields of a conversion and of the ops, for editors.

It is of draft 7, which editors know best. It describes the usual way of writing: tar2tf also takes a number in quotes.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

from tar2tf_cli.ops import OPS
from tar2tf_cli.ops.rules import text
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.yaml_file import IDENTITY, SECTIONS, spec_fields

_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {6,}.*)*)", re.MULTILINE)


def spec_schema() -> dict[str, Any]:
    """Return the schema as plain JSON."""
    whole = _of(Conversion)
    for name, kind in SECTIONS.items():
        whole["properties"][name] = {**_of(kind), "description": _described(Conversion)[name]}
    identity = {name: {"description": "Written by tar2tf into manifests."} for name in IDENTITY}
    whole["properties"]["input"]["properties"].update(identity)
    selection = {"$ref": "#/definitions/selection"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "description": "A conversion by tar2tf.",
        **whole,
        "definitions": {
            "op": _op(),
            "selection": {
                "anyOf": [
                    text.schema,
                    {"type": "array", "items": selection},
                    {"type": "object", "additionalProperties": selection},
                ],
                "description": "An entry, ENTRY:nested.path in a JSON entry, or a list or mapping of these.",
            },
        },
    }


def _of(kind: type) -> dict[str, Any]:
    """Return the schema of a mapping with the fields of a spec class."""
    described = _described(kind)
    properties = {
        name: {**field.schema, "description": described[field.name]} for name, field in spec_fields(kind).items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _described(kind: type) -> dict[str, str]:
    """Return the meaning of each field, from the docstring of the class."""
    found = _ATTRIBUTE.findall(inspect.getdoc(kind) or "")
    return {name: _sentence(meaning) for name, meaning in found}


def _sentence(meaning: str) -> str:
    text = " ".join(meaning.split())
    return text[:1].upper() + text[1:]


def _op() -> dict[str, Any]:
    """Return the schema of one item of `ops`."""
    fields = {
        name: {**op.schema(), "description": f"{op.help()} {op.more()}".strip(), "examples": list(op.examples)}
        for name, op in OPS.items()
    }
    names = "|".join(OPS)
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": fields,
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
            {"type": "string", "pattern": f"^({names})(:.*)?$"},
            {
                "type": "object",
                "properties": {"func": fields["func"], "digest": {"type": "string"}},
                "required": ["func", "digest"],
                "additionalProperties": False,
            },
        ],
        "description": "An op: NAME: FIELDS, or NAME:FIELDS as text, as after --op.",
    }
