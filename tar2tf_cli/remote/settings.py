"""What a transformer is told of a conversion: all that determines the records of one input, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from tar2tf_cli import __version__
from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.yaml_file import build, overlaid, problems

__all__ = ["ENVIRONMENT", "Settings"]

ENVIRONMENT: Final = "TAR2TF_ETL_SETTINGS"
"""The variable from which a transformer reads its settings."""

_ELSEWHERE: Final = ("output", "shuffle", "split", "max_errors")
"""What happens to records after they were made, or to the results of several inputs."""

_PLACES: Final = {"input": {"bucket": "-"}, "output": {"path": "-"}}
"""The bucket and the output that a conversion must have, and a transformer does not use."""


@dataclass(frozen=True)
class Settings:
    """The settings of a transformer.

    Attributes:
        spec: the canonical spec without what does not concern a single input.
        keys: whether the key of each sample is sent, which decides about its split.
    """

    spec: Mapping[str, Any]
    keys: bool = False

    @classmethod
    def of(cls, conversion: Conversion) -> Settings:
        """The settings for a conversion.

        Raises:
            UsageError: when it runs Python code of the user, or its inputs are not tars.
        """
        if conversion.runs_own_code:
            raise _refused()
        if conversion.input.kind != "tar":
            raise UsageError("a cluster converts tars only", hint="leave out --from, or convert without --remote-exec")
        spec = {name: value for name, value in conversion.canonical().items() if name not in _ELSEWHERE}
        spec["input"] = {name: value for name, value in spec["input"].items() if name not in ("bucket", "template")}
        if conversion.shuffle:
            spec.pop("limit", None)  # which then takes samples of all inputs
        return cls({name: value for name, value in spec.items() if value != {}}, bool(conversion.split))

    @classmethod
    def load(cls, text: str) -> Settings:
        """The settings that `text` returned as text.

        Raises:
            UsageError: when they are not valid, or of another version.
        """
        try:
            whole = json.loads(text)
            version, spec, keys = whole["version"], whole["spec"], whole["keys"]
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{ENVIRONMENT} does not hold the settings of a transformer") from None
        if version != __version__:
            raise UsageError(
                f"the settings are of tar2tf {version}, but this is {__version__}",
                hint="use an image with the version of the client",
            )
        if any(_is_func(op) for op in spec.get("ops") or ()):  # which to check would be to import
            raise _refused()
        if found := [message for _, message in problems(spec)]:
            raise UsageError(f"{ENVIRONMENT}: {'; '.join(found)}")
        settings = cls(spec, bool(keys))
        cls.of(settings.conversion())
        return settings

    @property
    def text(self) -> str:
        """The settings as JSON, the same for equal settings."""
        whole = {"version": __version__, "spec": self.spec, "keys": self.keys}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that are equal for equal settings of the same version."""
        return blake2b(self.text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        """The name of the transformer."""
        return f"tar2tf-{self.digest}"

    def conversion(self) -> Conversion:
        """The conversion by which a transformer reads one input."""
        return build(overlaid(_PLACES, self.spec))


def _is_func(op: Any) -> bool:
    return (op if isinstance(op, str) else next(iter(op), "")).partition(":")[0] == "func"


def _refused() -> UsageError:
    return UsageError(
        "a cluster runs no Python of yours: the op func and functions are not possible there",
        hint="leave them out, or convert without --remote-exec",
    )
