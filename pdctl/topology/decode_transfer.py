"""The `transfer` section of a checked document, with its short forms written out."""

from __future__ import annotations

from typing import cast

from pdctl.topology.model import (
    Ascend,
    AscendProtocol,
    IbDevices,
    Nixl,
    Nvlink,
    Staging,
    StagingMode,
    Transfer,
)
from pdctl.topology.section import Section
from pdctl.topology.tree import Value


def transfer_from(section: Section) -> Transfer:
    default = Transfer()
    return Transfer(
        backend=section.text("backend", default.backend),
        bootstrap_timeout_s=section.number("bootstrap_timeout_s", None),
        waiting_timeout_s=section.number("waiting_timeout_s", None),
        heartbeat_interval_s=section.number("heartbeat_interval_s", None),
        heartbeat_max_failures=section.integer("heartbeat_max_failures", None),
        bootstrap_token_file=section.text("bootstrap_token_file", None),
        verify_kv=section.flag("verify_kv", default.verify_kv),
        ib_devices=_ib_devices(section.value("ib_devices")),
        nvlink=cast(Nvlink, section.text("nvlink", default.nvlink)),
        staging=_staging(section.value("staging")),
        threads=_threads(section.value("threads")),
        queues=section.integer("queues", None),
        nixl=_nixl(section.section("nixl")),
        ascend=_ascend(section.section("ascend")),
    )


def _ib_devices(value: Value) -> IbDevices | None:
    match value:
        case None:
            return None
        case list():
            return IbDevices(shared=_names(value))
        case _:
            keys = Section(value).public()
            return IbDevices(
                by_device={int(key): _names(names) for key, names in keys if key.isdigit()},
                per_node={
                    node: devices
                    for key, nodes in keys
                    if key == "per_node"
                    for node, names in Section(nodes).public()
                    if (devices := _ib_devices(names)) is not None
                },
            )


def _names(value: Value) -> tuple[str, ...]:
    return tuple(cast(list[str], value))


def _staging(value: Value) -> Staging:
    if isinstance(value, str):
        return Staging(mode=cast(StagingMode, value))
    section, default = Section(value), Staging()
    return Staging(
        mode=cast(StagingMode, section.text("mode", default.mode)),
        buffer_mb=section.integer("buffer_mb", None),
        pool_mb=section.integer("pool_mb", None),
    )


def _threads(value: Value) -> int | None:
    return None if value is None or isinstance(value, str) else int(cast(int | float, value))


def _nixl(section: Section) -> Nixl:
    return Nixl(plugin=section.text("plugin", None), params=section.texts("params"))


def _ascend(section: Section) -> Ascend:
    return Ascend(
        store_url=section.text("store_url", None),
        protocol=cast(AscendProtocol | None, section.text("protocol", None)),
        with_mooncake=section.flag("with_mooncake", Ascend().with_mooncake),
    )
