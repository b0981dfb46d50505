"""Tar shards to TFRecord, and the truth about both."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tar2tf_cli.checking.inspect import inspect
    from tar2tf_cli.checking.verify import verify
    from tar2tf_cli.conversion.run import convert
    from tar2tf_cli.datasets.dataset import AisDataset, Dataset, default_record_parser
    from tar2tf_cli.datasets.load import load_dataset
    from tar2tf_cli.pipeline.builder import Pipeline
    from tar2tf_cli.spec.conversion import Conversion, Input, Output

__version__ = "0.1.0"

__all__ = [
    "AisDataset",
    "Conversion",
    "Dataset",
    "Input",
    "Output",
    "Pipeline",
    "convert",
    "default_record_parser",
    "inspect",
    "load_dataset",
    "verify",
]

_HOMES: Final = {
    "AisDataset": "datasets.dataset",
    "Conversion": "spec.conversion",
    "Dataset": "datasets.dataset",
    "Input": "spec.conversion",
    "Output": "spec.conversion",
    "Pipeline": "pipeline.builder",
    "convert": "conversion.run",
    "default_record_parser": "datasets.dataset",
    "inspect": "checking.inspect",
    "load_dataset": "datasets.load",
    "verify": "checking.verify",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
