"""Whether two pools can exchange pages: what would damage the answer silently is refused by name. Pure.

Decode checks first, against what the bootstrap server says of the prefill server; prefill checks again,
against the `Hello` of each decode instance. Both give the same sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.bootstrap.registry import ServerShape
from runtime.control.messages import PROTOCOL_VERSION, Hello
from runtime.kv.layout import KVLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What must be equal on both sides."""

    page_size: int
    dtype: str
    layout: str

    @classmethod
    def of_pool(cls, layout: KVLayout, dtype: str, *, num_kv_heads: int) -> Facts:
        """`layout` is one rank's, `num_kv_heads` counts those of all ranks."""
        name = layout_name(layout.num_layers, num_kv_heads, layout.head_dim)
        return cls(page_size=layout.page_size, dtype=dtype, layout=name)

    @classmethod
    def of_server(cls, shape: ServerShape) -> Facts:
        return cls(page_size=shape.page_size, dtype=shape.kv_cache_dtype, layout=shape.kv_layout or "unknown")

    @classmethod
    def of_hello(cls, hello: Hello) -> Facts:
        name = layout_name(hello.num_layers, hello.num_kv_heads, hello.head_dim)
        return cls(page_size=hello.page_size, dtype=hello.dtype, layout=name)


def layout_name(num_layers: int, num_kv_heads: int, head_dim: int) -> str:
    """The `kv_layout` that this engine registers under: what a token's KV is, however ranks split it."""
    return f"layers={num_layers},kv_heads={num_kv_heads},head_dim={head_dim}"


def mismatch(*, prefill: Facts, decode: Facts) -> str | None:
    """One sentence with every difference and what to do, or None."""
    differences = list(_differences(prefill, decode))
    if not differences:
        return None
    return (
        f"prefill and decode cannot exchange KV: {'; '.join(differences)}. Start both with the same model, "
        "--page-size and --dtype; decode would read wrong KV and answer wrong text without any error"
    )


def hello_mismatch(hello: Hello, ours: Facts, *, backend: str) -> str | None:
    """Why a prefill engine refuses the decode instance that introduced itself so, or None."""
    if hello.version != PROTOCOL_VERSION:
        return f"prefill speaks version {PROTOCOL_VERSION} of the control protocol, decode {hello.version}"
    if hello.backend != backend:
        return f"prefill moves KV with the backend `{backend}`, decode with `{hello.backend}`"
    return mismatch(prefill=ours, decode=Facts.of_hello(hello))


def _differences(prefill: Facts, decode: Facts) -> Iterator[str]:
    for name, one, two in (
        ("page size", prefill.page_size, decode.page_size),
        ("KV dtype", prefill.dtype, decode.dtype),
        ("KV layout", prefill.layout, decode.layout),
    ):
        if one != two:
            yield f"prefill has the {name} {one}, decode {two}"
