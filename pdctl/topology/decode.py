"""From checked plain values to the dataclasses. Only called on documents without a schema fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, overload

from pdctl.topology.model import (
    ArgValue,
    Cluster,
    Engine,
    Health,
    Host,
    Model,
    Parallel,
    Role,
    RoleName,
    Router,
    Settings,
    Topology,
    Transfer,
)
from pdctl.topology.source import SourceMap
from pdctl.topology.tree import Value, is_private


def decode(value: Value, source: SourceMap) -> Topology:
    document = _Section(value)
    return Topology(
        schema=document.required_text("schema"),
        name=document.required_text("name"),
        model=_model(document.section("model")),
        engine=_engine(document.section("engine")),
        cluster=_cluster(document.section("cluster")),
        transfer=_transfer(document.section("transfer")),
        defaults=_settings(document.section("defaults")),
        prefill=_role("prefill", document.section("prefill")),
        decode=_role("decode", document.section("decode")),
        router=_router(document.section("router")),
        health=_health(document.section("health")),
        source=source,
    )


class _Section:
    """Typed access to one mapping; an absent key is the default. The schema has vouched for the types."""

    def __init__(self, value: Value) -> None:
        self._values = cast(Mapping[str, Value], value or {})

    def required_text(self, key: str) -> str:
        return cast(str, self._values[key])

    @overload
    def text(self, key: str, default: str) -> str: ...
    @overload
    def text(self, key: str, default: None) -> str | None: ...
    def text(self, key: str, default: str | None) -> str | None:
        return cast(str | None, self._values.get(key, default))

    @overload
    def integer(self, key: str, default: int) -> int: ...
    @overload
    def integer(self, key: str, default: None) -> int | None: ...
    def integer(self, key: str, default: int | None) -> int | None:
        # JSON Schema counts 2.0 as an integer.
        return int(cast(int | float, self._values[key])) if key in self._values else default

    @overload
    def number(self, key: str, default: float) -> float: ...
    @overload
    def number(self, key: str, default: None) -> float | None: ...
    def number(self, key: str, default: float | None) -> float | None:
        return float(cast(int | float, self._values[key])) if key in self._values else default

    def flag(self, key: str, default: bool) -> bool:
        return cast(bool, self._values.get(key, default))

    def items(self, key: str) -> list[Value]:
        return cast(list[Value], self._values.get(key, []))

    def is_list(self, key: str) -> bool:
        return isinstance(self._values.get(key), list)

    def section(self, key: str) -> _Section:
        return _Section(self._values.get(key, {}))

    def args(self) -> dict[str, ArgValue]:
        return {name: _arg(value) for name, value in self._public("args")}

    def env(self) -> dict[str, str]:
        return {name: cast(str, value) for name, value in self._public("env")}

    def _public(self, key: str) -> list[tuple[str, Value]]:
        values = cast(Mapping[str, Value], self._values.get(key, {}))
        return [(name, value) for name, value in values.items() if not is_private(name)]


def _arg(value: Value) -> ArgValue:
    if isinstance(value, list):
        return tuple(cast(list[str | int | float], value))
    return cast(str | int | float | bool | None, value)


def _model(section: _Section) -> Model:
    return Model(path=section.required_text("path"), served_name=section.text("served_name", None))


def _engine(section: _Section) -> Engine:
    return Engine(
        kind=section.required_text("kind"),
        version=section.text("version", None),
        python=section.text("python", None),
    )


def _cluster(section: _Section) -> Cluster:
    default = Cluster()
    nodes = (
        tuple(_host(_Section(item)) for item in section.items("nodes"))
        if section.is_list("nodes")
        else section.integer("nodes", cast(int, default.nodes))
    )
    return Cluster(
        executor=section.text("executor", default.executor),
        nodes=nodes,
        devices_per_node=section.integer("devices_per_node", default.devices_per_node),
    )


def _host(section: _Section) -> Host:
    return Host(
        name=section.required_text("name"),
        address=section.text("address", None),
        devices=section.integer("devices", None),
    )


def _transfer(section: _Section) -> Transfer:
    default = Transfer()
    return Transfer(
        backend=section.text("backend", default.backend),
        bootstrap_timeout_s=section.number("bootstrap_timeout_s", None),
        waiting_timeout_s=section.number("waiting_timeout_s", None),
        heartbeat_interval_s=section.number("heartbeat_interval_s", None),
        verify_kv=section.flag("verify_kv", default.verify_kv),
    )


def _settings(section: _Section) -> Settings:
    return Settings(args=section.args(), env=section.env())


def _role(name: RoleName, section: _Section) -> Role:
    default = Role(name=name)
    return Role(
        name=name,
        instances=section.integer("instances", default.instances),
        nodes=section.integer("nodes", None),
        devices=section.integer("devices", None),
        parallel=_parallel(section.section("parallel")),
        on=tuple(cast(str, item) for item in section.items("on")),
        port=section.integer("port", None),
        bootstrap_port=section.integer("bootstrap_port", None),
        args=section.args(),
        env=section.env(),
    )


def _parallel(section: _Section) -> Parallel:
    default = Parallel()
    return Parallel(
        tp=section.integer("tp", default.tp),
        attn_dp=section.integer("attn_dp", default.attn_dp),
        ep=section.integer("ep", default.ep),
        pp=section.integer("pp", default.pp),
    )


def _router(section: _Section) -> Router:
    default = Router()
    return Router(
        kind=section.text("kind", default.kind),
        policy=section.text("policy", None),
        prefill_policy=section.text("prefill_policy", None),
        decode_policy=section.text("decode_policy", None),
        host=section.text("host", None),
        port=section.integer("port", None),
        on=section.text("on", None),
        python=section.text("python", None),
        args=section.args(),
        env=section.env(),
    )


def _health(section: _Section) -> Health:
    default = Health()
    return Health(
        ready_deadline_s=section.number("ready_deadline_s", default.ready_deadline_s),
        stop_grace_s=section.number("stop_grace_s", default.stop_grace_s),
        canary=section.flag("canary", default.canary),
    )
