"""What SGLang refuses of the document's fields at start, and what it takes and then ignores.

Rules about flags, models and the agreement of both roles are in `pdctl/rules/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.engines.sglang.release import Release
from pdctl.engines.sglang.transfer import BACKENDS, LOWEST_HEARTBEAT_INTERVAL_S, reads_ib_devices
from pdctl.program import Rule
from pdctl.topology.model import Ascend, Nixl, Topology, Transfer
from pdctl.topology.nearest import suggest
from pdctl.topology.source import DocumentPath, dotted


def _backend_is_known(topology: Topology) -> Iterable[Diagnostic]:
    backend = topology.transfer.backend
    if backend in BACKENDS:
        return
    choose = "set `mooncake` for RDMA, `mooncake_tcp` where there is none"
    yield Diagnostic(
        code="PD254",
        message=f"SGLang has no transfer backend `{backend}`",
        span=topology.source.value("transfer", "backend") or topology.source.value("engine", "kind"),
        path="transfer.backend",
        notes=(f"it has {', '.join(f'`{each}`' for each in BACKENDS)}",),
        help=choose if backend == Transfer().backend else suggest(backend, BACKENDS),
    )


def _settings_are_of_the_backend(topology: Topology) -> Iterable[Diagnostic]:
    transfer, release = topology.transfer, Release(version=topology.engine.version)
    if transfer.backend not in BACKENDS:
        return
    unread = {
        "nixl": transfer.nixl != Nixl() and transfer.backend != "nixl",
        "ascend": transfer.ascend != Ascend() and transfer.backend != "ascend",
        "nvlink": transfer.nvlink == "intra_node" and transfer.backend != "mooncake",
        "ib_devices": transfer.ib_devices is not None and not reads_ib_devices(transfer, release),
    }
    for name, is_unread in unread.items():
        if is_unread:
            yield _ignored(
                topology,
                ("transfer", name),
                "PD255",
                f"SGLang {_shown(release)} ignores `transfer.{name}` with the backend `{transfer.backend}`",
                help="remove it, or choose the backend that it is for",
            )
    if transfer.nvlink == "mnnvl" and transfer.backend != "mooncake":
        yield _ignored(
            topology,
            ("transfer", "nvlink"),
            "PD255",
            f"with the backend `{transfer.backend}`, `nvlink: mnnvl` reaches NCCL alone",
            notes=("only Mooncake is told to send KV cache over the fabric",),
            help="choose `backend: mooncake`, or set NCCL_MNNVL_ENABLE under `defaults.env`",
        )


def _settings_are_of_the_release(topology: Topology) -> Iterable[Diagnostic]:
    transfer, release = topology.transfer, Release(version=topology.engine.version)
    has_size = transfer.staging.buffer_mb is not None
    unread: Mapping[DocumentPath, tuple[bool, str]] = {
        ("transfer", "verify_kv"): (
            transfer.verify_kv and not release.has_kv_checksum,
            "it has checksums from 0.5.21 on",
        ),
        ("transfer", "staging", "buffer_mb"): (
            has_size and not release.reads_staging_buffer_size,
            "releases from 0.5.10 to 0.5.16 read it; later ones make the buffer as large as a chunk needs",
        ),
        ("transfer", "nvlink"): (
            transfer.nvlink == "intra_node"
            and transfer.backend == "mooncake"
            and not release.has_pool_inside_a_node,
            "its pool for NVLink inside a node works from 0.5.10 on",
        ),
        ("transfer", "nixl", "params"): (
            bool(transfer.nixl.params) and not release.reads_nixl_params,
            "it reads them from 0.5.12 on",
        ),
    }
    for path, (is_unread, note) in unread.items():
        if is_unread:
            message = f"SGLang {_shown(release)} doesn't read `{dotted(path)}`"
            yield _ignored(topology, path, "PD256", message, notes=(note,), help="remove it")


def _values_are_taken_as_they_are(topology: Topology) -> Iterable[Diagnostic]:
    transfer = topology.transfer
    for name, seconds in {
        "bootstrap_timeout_s": transfer.bootstrap_timeout_s,
        "waiting_timeout_s": transfer.waiting_timeout_s,
    }.items():
        if seconds is not None and not seconds.is_integer():
            yield _ignored(
                topology,
                ("transfer", name),
                "PD257",
                f"SGLang counts whole seconds here, so {seconds:g} is rounded up",
                help="write a whole number",
            )
    interval_s = transfer.heartbeat_interval_s
    if interval_s is not None and interval_s < LOWEST_HEARTBEAT_INTERVAL_S:
        yield _ignored(
            topology,
            ("transfer", "heartbeat_interval_s"),
            "PD257",
            f"SGLang raises a heartbeat interval of {interval_s:g} s to {LOWEST_HEARTBEAT_INTERVAL_S:g} s",
            help=f"set {LOWEST_HEARTBEAT_INTERVAL_S:g} or more",
        )


def _no_token_for_the_bootstrap_server(topology: Topology) -> Iterable[Diagnostic]:
    """An error: who names a token counts on its being asked for."""
    if topology.transfer.bootstrap_token_file is None:
        return
    path = ("transfer", "bootstrap_token_file")
    yield Diagnostic(
        code="PD362",
        message="SGLang's bootstrap server asks for no token",
        span=topology.source.key(*path),
        path=dotted(path),
        notes=("whoever reaches its port can register there, and have KV cache sent elsewhere",),
        help="remove it, and let a firewall keep everybody but the nodes from the port",
    )


def _stages_fill_nodes(topology: Topology) -> Iterable[Diagnostic]:
    """`entrypoints/engine.py`, `_calculate_rank_ranges`: whole stages per node, or whole nodes per stage."""
    for role in topology.roles:
        nodes, stages = role.nodes or 1, role.parallel.pp
        if max(nodes, stages) % min(nodes, stages):
            yield Diagnostic(
                code="PD258",
                message=f"{stages} pipeline stages can't be laid out over {nodes} nodes",
                span=topology.source.value(role.name, "parallel", "pp"),
                path=f"{role.name}.parallel.pp",
                notes=(
                    "SGLang puts whole stages on a node or whole nodes under a stage, and drops the rest",
                ),
                help="make one of `pp` and `nodes` a multiple of the other",
            )


def _attention_groups_fill_tp(topology: Topology) -> Iterable[Diagnostic]:
    """`arg_groups/parallel_hook.py`; where `attn_dp` alone doesn't divide, PD201 says so."""
    for role in topology.roles:
        parallel = role.parallel
        if parallel.attn_cp > 1 and parallel.tp % (parallel.attn_dp * parallel.attn_cp):
            yield Diagnostic(
                code="PD259",
                message=f"`attn_dp: {parallel.attn_dp}` times `attn_cp: {parallel.attn_cp}` doesn't divide"
                f" `tp: {parallel.tp}`",
                span=topology.source.value(role.name, "parallel", "attn_cp"),
                path=f"{role.name}.parallel.attn_cp",
                notes=("SGLang ends at start with an assertion",),
                help="make `tp` a multiple of both together",
            )


def _ignored(
    topology: Topology, path: DocumentPath, code: str, message: str, *, help: str, notes: tuple[str, ...] = ()
) -> Diagnostic:
    return Diagnostic(
        code=code,
        message=message,
        severity=Severity.WARNING,
        span=topology.source.key(*path),
        path=dotted(path),
        notes=notes,
        help=help,
    )


def _shown(release: Release) -> str:
    return release.version or "in its newest release"


RULES: tuple[Rule, ...] = (
    Rule(code="PD254", check=_backend_is_known),
    Rule(code="PD255", check=_settings_are_of_the_backend),
    Rule(code="PD256", check=_settings_are_of_the_release),
    Rule(code="PD257", check=_values_are_taken_as_they_are),
    Rule(code="PD258", check=_stages_fill_nodes),
    Rule(code="PD259", check=_attention_groups_fill_tp),
    Rule(code="PD362", check=_no_token_for_the_bootstrap_server),
)
