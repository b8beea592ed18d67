"""The bootstrap table: which prefill ranks exist, and which attention-DP rank serves a room. Pure, no I/O.

Field names are those of SGLang's `PUT /route` body: its ranks can register here, and ours at its server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

MAX_RANKS = 4096
MAX_ROOMS = 65_536
ROOM_TTL_S = 120.0
MAX_ROOM_ID = 2**63 - 1
MAX_TEXT_LEN = 255

FOLLOW_BOOTSTRAP_ROOM = "follow_bootstrap_room"


class RegistrationError(ValueError):
    """A registration that the table refuses; the text has the value found and the value wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """One prefill rank as it announces itself; the four `*_size` fields describe the whole server."""

    attn_tp_size: int = 1
    attn_tp_rank: int = 0
    attn_cp_size: int = 1
    attn_cp_rank: int = 0
    attn_dp_size: int = 1
    attn_dp_rank: int = 0
    pp_size: int = 1
    pp_rank: int = 0
    system_dp_size: int = 1
    system_dp_rank: int = 0
    rank_ip: str
    rank_port: int
    page_size: int
    kv_cache_dtype: str
    kv_layout: str | None = None
    load_balance_method: str = FOLLOW_BOOTSTRAP_ROOM
    prefill_http_port: int | None = None
    decode_allocation_policy: str | None = None

    @property
    def dp_size(self) -> int:
        return self.attn_dp_size if self.system_dp_size == 1 else self.system_dp_size

    @property
    def dp_rank(self) -> int:
        return self.attn_dp_rank if self.system_dp_size == 1 else self.system_dp_rank

    @property
    def key(self) -> tuple[int, int, int, int]:
        return (self.dp_rank, self.attn_cp_rank, self.attn_tp_rank, self.pp_rank)

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole server that this record belongs to."""
        return self.dp_size * self.attn_cp_size * self.attn_tp_size * self.pp_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerShape:
    """What a decode instance must know of a prefill server before it talks to its ranks."""

    attn_tp_size: int
    attn_cp_size: int
    dp_size: int
    pp_size: int
    page_size: int
    kv_cache_dtype: str
    kv_layout: str | None
    follow_bootstrap_room: bool
    load_balance_method: str
    prefill_http_port: int | None
    decode_allocation_policy: str | None

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, record: RankRecord) -> ServerShape:
        return cls(
            attn_tp_size=record.attn_tp_size,
            attn_cp_size=record.attn_cp_size,
            dp_size=record.dp_size,
            pp_size=record.pp_size,
            page_size=record.page_size,
            kv_cache_dtype=record.kv_cache_dtype,
            kv_layout=record.kv_layout,
            follow_bootstrap_room=record.load_balance_method == FOLLOW_BOOTSTRAP_ROOM,
            load_balance_method=record.load_balance_method,
            prefill_http_port=record.prefill_http_port,
            decode_allocation_policy=record.decode_allocation_policy,
        )


def parse_rank_record(body: Mapping[str, object]) -> RankRecord:
    """Check a `PUT /route` body field by field; keys this version does not know are left out."""
    sizes = {name: _integer(body, name, 1, MAX_RANKS, default=1) for name in _SIZES}
    ranks = {
        name: _integer(body, name, 0, sizes[name.replace("_rank", "_size")] - 1, default=0) for name in _RANKS
    }
    record = RankRecord(
        **sizes,
        **ranks,
        rank_ip=_required_text(body, "rank_ip"),
        rank_port=_integer(body, "rank_port", 1, 65_535),
        page_size=_integer(body, "page_size", 1, 2**20),
        kv_cache_dtype=_required_text(body, "kv_cache_dtype"),
        kv_layout=_text(body, "kv_layout"),
        load_balance_method=_text(body, "load_balance_method") or FOLLOW_BOOTSTRAP_ROOM,
        prefill_http_port=_optional_port(body, "prefill_http_port"),
        decode_allocation_policy=_text(body, "decode_allocation_policy"),
    )
    if record.num_ranks > MAX_RANKS:
        raise RegistrationError(
            f"the server would have {record.num_ranks} ranks, at most {MAX_RANKS} are kept"
        )
    return record


class RouteTable:
    """The ranks of one prefill server. It answers once the last of them has registered."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int, int, int], RankRecord] = {}

    def register(self, record: RankRecord) -> None:
        """Add a rank, or replace it after a restart; one server has one shape."""
        others = [known for key, known in self._records.items() if key != record.key]
        if others and ServerShape.of(others[0]) != ServerShape.of(record):
            found, wanted = ServerShape.of(record), ServerShape.of(others[0])
            raise RegistrationError(f"rank {record.key} describes {found}, the ranks before it {wanted}")
        self._records[record.key] = record

    def shape(self) -> ServerShape | None:
        """The server's shape, absent until every rank has registered."""
        record = next(iter(self._records.values()), None)
        if record is None or len(self._records) < record.num_ranks:
            return None
        return ServerShape.of(record)

    def rank(self, *, dp_rank: int, cp_rank: int, tp_rank: int, pp_rank: int) -> RankRecord | None:
        return self._records.get((dp_rank, cp_rank, tp_rank, pp_rank))


class RoomTable:
    """Which attention-DP rank took a room: bounded, the oldest leaves first, entries expire."""

    def __init__(self, *, max_rooms: int = MAX_ROOMS, ttl_s: float = ROOM_TTL_S) -> None:
        self._max_rooms = max_rooms
        self._ttl_s = ttl_s
        self._entries: OrderedDict[int, tuple[int, float]] = OrderedDict()  # room -> dp_rank, time it expires

    def __len__(self) -> int:
        return len(self._entries)

    def register(self, room: int, dp_rank: int, *, now_s: float) -> None:
        self._entries[room] = (dp_rank, now_s + self._ttl_s)
        self._entries.move_to_end(room)  # insertion order is expiry order: one lifetime for all
        self._expire(now_s)
        if len(self._entries) > self._max_rooms:
            self._entries.popitem(last=False)

    def query(self, rooms: Sequence[int], *, now_s: float) -> dict[int, int]:
        """The DP rank of each room that is known."""
        self._expire(now_s)
        return {room: self._entries[room][0] for room in rooms if room in self._entries}

    def _expire(self, now_s: float) -> None:
        while self._entries:
            room, (_, expires_s) = next(iter(self._entries.items()))
            if expires_s > now_s:
                return
            del self._entries[room]


_SIZES = ("attn_tp_size", "attn_cp_size", "attn_dp_size", "pp_size", "system_dp_size")
_RANKS = ("attn_tp_rank", "attn_cp_rank", "attn_dp_rank", "pp_rank", "system_dp_rank")


def _integer(
    body: Mapping[str, object], name: str, lowest: int, highest: int, *, default: int | None = None
) -> int:
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise RegistrationError(
            f"`{name}` must be an integer from {lowest} to {highest}, found {value!r:.60}"
        )
    return value


def _optional_port(body: Mapping[str, object], name: str) -> int | None:
    return None if body.get(name) is None else _integer(body, name, 1, 65_535)


def _text(body: Mapping[str, object], name: str) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_LEN:
        raise RegistrationError(
            f"`{name}` must be a text of 1 to {MAX_TEXT_LEN} characters, found {value!r:.60}"
        )
    return value


def _required_text(body: Mapping[str, object], name: str) -> str:
    value = _text(body, name)
    if value is None:
        raise RegistrationError(f"`{name}` is missing")
    return value
