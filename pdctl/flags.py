"""Turn the document's `args` into argv."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdctl.topology.model import Args, ArgValue, Env


def merged(*layers: Args) -> dict[str, ArgValue]:
    """Later layers win, key by key."""
    return {name: value for layer in layers for name, value in layer.items()}


def merged_env(*layers: Env) -> dict[str, str]:
    return {name: value for layer in layers for name, value in layer.items()}


def to_argv(args: Mapping[str, ArgValue]) -> tuple[str, ...]:
    """`{"page-size": 16, "verify-kv": true, "trace": false}` as `--page-size 16 --verify-kv`.

    True is the bare flag; False and None leave it out; a list is one flag with several values.
    """
    return tuple(_words(args))


def _words(args: Mapping[str, ArgValue]) -> Iterator[str]:
    for name, value in args.items():
        if value is None or value is False:
            continue
        yield f"--{name}"
        if value is True:
            continue
        values = value if isinstance(value, tuple) else (value,)
        yield from (str(each) for each in values)
