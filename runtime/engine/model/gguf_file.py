"""The container format GGUF: metadata and tensors of one file, mapped, copied only when asked for.

The `gguf` library knows the quantised types and is used for them. Its own reader makes one array object per
string of the vocabulary: seconds for 49,152 tokens; this one takes about 0.1 s for the whole header.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from runtime.engine.model.errors import ModelError

_DEFAULT_ALIGNMENT = 32
_VERSIONS = (2, 3)
_PLAIN = {GGMLQuantizationType.F16: np.float16, GGMLQuantizationType.F32: np.float32}
_BLOCKS_AT_ONCE = 4096
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor lies; `shape` is in torch's order, outermost first (the file has it reversed)."""

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset_bytes: int  # from the start of the file
    num_bytes: int


class GGUFFile:
    """An open file. `metadata` has plain Python values; `read` dequantises, from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = _map(path)
        try:
            self.metadata, self.tensors = _Header(self._bytes).parse()
        except (struct.error, IndexError):
            raise ModelError(f"{path} is truncated: its header ends after {len(self._bytes)} bytes") from None
        except _Malformed as fault:
            raise ModelError(f"{path} is no usable GGUF file: {fault}") from None
        for name, entry in self.tensors.items():
            end = entry.offset_bytes + entry.num_bytes
            if end > len(self._bytes):
                raise ModelError(
                    f"{path} is truncated: tensor `{name}` ends at byte {end},"
                    f" the file has {len(self._bytes)}"
                )

    def read(self, name: str) -> Tensor:
        """Give one tensor as float32, or as float16 or float32 as the file has it."""
        entry = self.tensors[name]
        raw = np.frombuffer(self._bytes, dtype=np.uint8, count=entry.num_bytes, offset=entry.offset_bytes)
        plain = _PLAIN.get(entry.kind)
        if plain is not None:
            values = raw.view(plain).copy()
        else:
            try:
                values = _dequantize(raw, entry.kind)
            except NotImplementedError:
                raise ModelError(
                    f"tensor `{name}` in {self.path} has type {entry.kind.name}, which has no conversion"
                ) from None
        return torch.from_numpy(values.reshape(entry.shape))


class _Malformed(Exception):
    """The bytes are there, and they aren't GGUF."""


class _Header:
    """A cursor over the header. Reading past the end raises `struct.error` or `IndexError`."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer
        self._position = 0

    def parse(self) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
        if self._buffer[:4] != b"GGUF":
            raise _Malformed(f"it begins with {self._buffer[:4]!r}, not `GGUF`")
        self._position = 4
        version = self._number(_U32)
        if version not in _VERSIONS:
            raise _Malformed(f"version {version} is unknown, versions 2 and 3 are read")
        num_tensors, num_values = self._number(_U64), self._number(_U64)
        metadata = {self._string(): self._value(self._number(_U32)) for _ in range(num_values)}
        entries = [self._tensor_entry() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        start = -(-self._position // alignment) * alignment
        return metadata, {name: _entry(dims, kind, start + offset) for name, dims, kind, offset in entries}

    def _number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._buffer, self._position)
        self._position += layout.size
        return value

    def _string(self) -> str:
        num_bytes = self._number(_U64)
        end = self._position + num_bytes
        if end > len(self._buffer):
            raise IndexError
        text = self._buffer[self._position : end].decode("utf-8", errors="replace")
        self._position = end
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(self._number(_U32), self._number(_U64))
        return self._scalars(kind, 1)[0]

    def _array(self, kind: int, num_items: int) -> list[Any]:
        if num_items > len(self._buffer):  # an item has at least one byte
            raise IndexError
        if kind in _SCALARS:
            return self._scalars(kind, num_items)
        return [self._value(kind) for _ in range(num_items)]

    def _scalars(self, kind: int, num_items: int) -> list[Any]:
        if kind not in _SCALARS:
            raise _Malformed(f"metadata of type {kind} is unknown")
        layout = struct.Struct(f"<{num_items}{_SCALARS[kind]}")
        values = layout.unpack_from(self._buffer, self._position)
        self._position += layout.size
        return list(values)

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dims = tuple(self._scalars(10, self._number(_U32)))
        return name, dims, self._number(_U32), self._number(_U64)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise ModelError(f"{path} is truncated: it is empty") from None


def _entry(dims: tuple[int, ...], raw_kind: int, offset_bytes: int) -> TensorEntry:
    try:
        kind = GGMLQuantizationType(raw_kind)
    except ValueError:
        raise _Malformed(f"tensor type {raw_kind} is unknown") from None
    block_len, block_bytes = GGML_QUANT_SIZES[kind]
    num_elements = 1
    for size in dims:
        num_elements *= size
    num_bytes = num_elements // block_len * block_bytes
    return TensorEntry(shape=dims[::-1], kind=kind, offset_bytes=offset_bytes, num_bytes=num_bytes)


def _dequantize(raw: NDArray[np.uint8], kind: GGMLQuantizationType) -> NDArray[np.float32]:
    """Give all elements, flat.

    The library goes through a matrix in groups of 16 rows, hundreds of small numpy calls per tensor. Blocks
    are independent of rows, so it is handed few long rows instead, still short enough for the cache.
    """
    block_len, block_bytes = GGML_QUANT_SIZES[kind]
    num_blocks = len(raw) // block_bytes
    out = np.empty(num_blocks * block_len, dtype=np.float32)
    for start in range(0, num_blocks, _BLOCKS_AT_ONCE):
        end = min(start + _BLOCKS_AT_ONCE, num_blocks)
        row = raw[start * block_bytes : end * block_bytes].reshape(1, -1)
        out[start * block_len : end * block_len] = dequantize(row, kind).ravel()
    return out
