"""From checked plain values to the dataclasses. Only called on documents without a schema fault."""

from __future__ import annotations

from typing import cast

from pdctl.topology.decode_cluster import cluster_from
from pdctl.topology.decode_transfer import transfer_from
from pdctl.topology.model import (
    Attention,
    Breaker,
    Engine,
    Health,
    HealthCheck,
    Model,
    Parallel,
    Queue,
    Retries,
    Role,
    RoleName,
    Router,
    Settings,
    Topology,
)
from pdctl.topology.section import Section
from pdctl.topology.source import SourceMap
from pdctl.topology.tree import Value


def decode(value: Value, source: SourceMap) -> Topology:
    document = Section(value)
    return Topology(
        schema=document.required_text("schema"),
        name=document.required_text("name"),
        model=_model(document.section("model")),
        engine=_engine(document.section("engine")),
        cluster=cluster_from(document.section("cluster")),
        transfer=transfer_from(document.section("transfer")),
        defaults=_settings(document.section("defaults")),
        prefill=_role("prefill", document.section("prefill")),
        decode=_role("decode", document.section("decode")),
        router=_router(document.section("router")),
        health=_health(document.section("health")),
        source=source,
    )


def _model(section: Section) -> Model:
    return Model(
        path=section.required_text("path"),
        served_name=section.text("served_name", None),
        attention=cast(Attention | None, section.text("attention", None)),
        layers=section.integer("layers", None),
        kv_heads=section.integer("kv_heads", None),
        head_dim=section.integer("head_dim", None),
        experts=section.integer("experts", None),
        context_length=section.integer("context_length", None),
    )


def _engine(section: Section) -> Engine:
    return Engine(
        kind=section.required_text("kind"),
        version=section.text("version", None),
        python=section.text("python", None),
    )


def _settings(section: Section) -> Settings:
    return Settings(args=section.args(), env=section.env())


def _role(name: RoleName, section: Section) -> Role:
    default = Role(name=name)
    return Role(
        name=name,
        instances=section.integer("instances", default.instances),
        nodes=section.integer("nodes", None),
        devices=section.integer("devices", None),
        parallel=_parallel(section.section("parallel")),
        on=tuple(cast(str, item) for item in section.items("on")),
        device_order=tuple(int(cast(int, item)) for item in section.items("device_order")),
        devices_of=cast(RoleName | None, section.text("devices_of", None)),
        port=section.integer("port", None),
        bootstrap_port=section.integer("bootstrap_port", None),
        kv_events_port=section.integer("kv_events_port", None),
        args=section.args(),
        env=section.env(),
    )


def _parallel(section: Section) -> Parallel:
    default = Parallel()
    return Parallel(
        tp=section.integer("tp", default.tp),
        attn_dp=section.integer("attn_dp", default.attn_dp),
        ep=section.integer("ep", default.ep),
        pp=section.integer("pp", default.pp),
        attn_cp=section.integer("attn_cp", default.attn_cp),
        dp=section.integer("dp", default.dp),
    )


def _router(section: Section) -> Router:
    default = Router()
    return Router(
        kind=section.text("kind", default.kind),
        version=section.text("version", None),
        policy=section.text("policy", None),
        prefill_policy=section.text("prefill_policy", None),
        decode_policy=section.text("decode_policy", None),
        host=section.text("host", None),
        port=section.integer("port", None),
        on=section.text("on", None),
        python=section.text("python", None),
        metrics_port=section.integer("metrics_port", None),
        api_key_env=section.text("api_key_env", None),
        request_timeout_s=section.integer("request_timeout_s", None),
        retries=_retries(section.section("retries")),
        breaker=_breaker(section.section("breaker")),
        queue=_queue(section.section("queue")),
        health_check=_health_check(section.section("health_check")),
        args=section.args(),
        env=section.env(),
    )


def _retries(section: Section) -> Retries:
    return Retries(
        attempts=section.integer("attempts", None),
        initial_backoff_ms=section.integer("initial_backoff_ms", None),
        max_backoff_ms=section.integer("max_backoff_ms", None),
    )


def _breaker(section: Section) -> Breaker:
    return Breaker(
        enabled=section.flag("enabled", Breaker().enabled),
        failures=section.integer("failures", None),
        successes=section.integer("successes", None),
        open_s=section.integer("open_s", None),
        window_s=section.integer("window_s", None),
    )


def _queue(section: Section) -> Queue:
    return Queue(
        max_concurrent=section.integer("max_concurrent", None),
        size=section.integer("size", None),
        timeout_s=section.integer("timeout_s", None),
    )


def _health_check(section: Section) -> HealthCheck:
    return HealthCheck(
        endpoint=section.text("endpoint", None),
        interval_s=section.integer("interval_s", None),
        timeout_s=section.integer("timeout_s", None),
        failures=section.integer("failures", None),
        successes=section.integer("successes", None),
    )


def _health(section: Section) -> Health:
    default = Health()
    return Health(
        ready_deadline_s=section.number("ready_deadline_s", default.ready_deadline_s),
        stop_grace_s=section.number("stop_grace_s", default.stop_grace_s),
        canary=section.flag("canary", default.canary),
    )
