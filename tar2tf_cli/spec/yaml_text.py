"""YAML text to a document that knows its lines, and to plain data, with limits on depth and on what aliases repeat."""

from __future__ import annotations

from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import RoundTripScanner, ScannerError

_MOST_DEPTH: Final = 64
_MOST_VALUES: Final = 100_000
_TOO_DEEP: Final = f"nested more than {_MOST_DEPTH} deep"


class _Scanner(RoundTripScanner):
    """Refuses brackets that are nested too deep, which it would need quadratic time for."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        super().fetch_flow_collection_start(TokenClass, to_push)
        if self.flow_level > _MOST_DEPTH:
            raise ScannerError(None, None, _TOO_DEEP, self.reader.get_mark())


def parse(text: str) -> Any:
    """Parse YAML; mappings and lists have the position of each item in `lc`.

    Raises:
        ValueError: when it is not YAML, has a duplicate key or is nested too deep: `LINE:COLUMN: ` and what is wrong.
    """
    yaml = YAML(typ="rt", pure=True)
    yaml.Scanner = _Scanner
    try:
        return yaml.load(text)
    except ReaderError as error:
        raise ValueError(f" not a text file: {error.reason} (character {error.position + 1})") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{mark.line + 1}:{mark.column + 1}:" if mark else ""
        problem = str(error.problem or error).partition("\n")[0]
        if isinstance(error, DuplicateKeyError):
            problem = problem.partition(" with value")[0].replace("found duplicate key", "duplicate key")
        raise ValueError(f"{place} {problem}") from None
    except RecursionError:
        raise ValueError(f" {_TOO_DEEP}") from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # ruamel.yaml was not prepared for it
        raise ValueError(f" not valid YAML: {error}") from None


def plain(document: Any) -> Any:
    """Convert a document to plain dicts, lists and scalars; what an alias stands for is repeated.

    Raises:
        ValueError: when that makes too many values, or never ends.
    """
    left = _MOST_VALUES

    def convert(node: Any, depth: int = 0) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f" more than {_MOST_VALUES:,} values, counting those that aliases repeat")
        if depth > _MOST_DEPTH:
            raise ValueError(f" {_TOO_DEEP}, or an alias contains itself")
        if isinstance(node, dict):
            return {convert(key, depth + 1): convert(value, depth + 1) for key, value in node.items()}
        if isinstance(node, list):
            return [convert(item, depth + 1) for item in node]
        if isinstance(node, TaggedScalar):
            raise ValueError(f" there is no type {node.tag.value!r}; write {node.value!r} without it")
        for kind in (bool, int, float, str):
            if isinstance(node, kind):
                return kind(node)
        return node

    return convert(document)
