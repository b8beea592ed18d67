"""Read one JSON document of a model folder and its numbers, or say what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.engine.model.errors import ModelError


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ModelError(f"{path} must hold a JSON object, found `{type(document).__name__}`")
    return document


def read_count(document: Mapping[str, Any], key: str, *, default: int | None = None) -> int:
    """A positive whole number; null is as good as absent."""
    value = document.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"`{key}` must be a positive whole number, found `{value}`")
    return value
