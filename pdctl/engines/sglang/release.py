"""What differs between releases of SGLang, as far as command lines and variables show it."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.flagtable.versions import VersionKey, version_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of SGLang. A version that isn't stated, or is no number, counts as the newest."""

    version: str | None

    def is_at_least(self, version: str) -> bool:
        mine, wanted = _key(self.version), _key(version)
        return mine is None or wanted is None or mine >= wanted

    @property
    def has_attn_dp_flag(self) -> bool:
        """`--attn-dp-size N`; before, `--dp-size N --enable-dp-attention` (`arg_groups/parallel_hook.py`)."""
        return self.is_at_least("0.5.22")

    @property
    def has_mooncake_tcp(self) -> bool:
        """The backend `mooncake_tcp`; before, `mooncake` with MC_FORCE_TCP did the same."""
        return self.is_at_least("0.5.13")

    @property
    def has_staging(self) -> bool:
        return self.is_at_least("0.5.10")

    @property
    def has_staging_over_nixl(self) -> bool:
        return self.is_at_least("0.5.12")

    def stages_from_pipelines(self, backend: str) -> bool:
        """Whether prefill may have pipeline stages; releases before 0.5.17 didn't look."""
        return not self.is_at_least("0.5.17") or (self.is_at_least("0.5.18") and backend == "mooncake")

    @property
    def stages_from_context_ranks(self) -> bool:
        return not self.is_at_least("0.5.17") or self.is_at_least("0.5.20")

    @property
    def reads_staging_buffer_size(self) -> bool:
        """From 0.5.17 on, prefill's buffer is as large as one chunk needs."""
        return self.has_staging and not self.is_at_least("0.5.17")

    @property
    def reads_nixl_params(self) -> bool:
        return self.is_at_least("0.5.12")

    @property
    def binds_nixl_to_ib_devices(self) -> bool:
        """`--disaggregation-ib-device` reaches NIXL's UCX (`disaggregation/nixl/conn.py`)."""
        return self.is_at_least("0.5.23")

    @property
    def has_pool_inside_a_node(self) -> bool:
        """NVLink inside a node; 0.5.9 knows its pool by two names, and none of them works."""
        return self.is_at_least("0.5.10")

    @property
    def has_kv_checksum(self) -> bool:
        return self.is_at_least("0.5.21")


def _key(version: str | None) -> VersionKey | None:
    return None if version is None else version_key(version)
