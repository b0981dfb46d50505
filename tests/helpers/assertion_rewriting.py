"""Make pytest rewrite the assertions of helper modules; imported before any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite(*({path.stem for path in Path(__file__).parent.glob("*.py")} - {__name__}))
