from __future__ import annotations

from pdctl.flagtable.model import Flag, FlagTable

TABLE = FlagTable.of(
    "sglang",
    "0.5.12.post1",
    [
        Flag(name="tp-size", aliases=("tensor-parallel-size",)),
        Flag(name="tp-size-limit"),
        Flag(name="dllm-fdfo", nargs=0, negation="no-dllm-fdfo"),
        Flag(name="cuda-graph-max-bs", dest="cuda_graph_max_bs_decode"),
    ],
)


def test_a_flag_is_found_by_each_of_its_spellings() -> None:
    for spelling in ("tp-size", "tensor-parallel-size"):
        assert TABLE.flag(spelling) == TABLE.flags[0]
    assert TABLE.flag("no-dllm-fdfo") == TABLE.flags[2]
    assert TABLE.flag("tensor") is None


def test_a_beginning_finds_a_flag_when_just_one_begins_so() -> None:
    assert TABLE.find("tensor") == TABLE.flags[0]
    assert TABLE.find("tp-size") == TABLE.flags[0], "an exact spelling is no beginning of another"
    assert TABLE.find("tp-s") is None
    assert set(TABLE.abbreviated("tp-s")) == {"tp-size", "tp-size-limit"}
    assert TABLE.find("nothing") is None


def test_a_flag_is_known_by_what_later_versions_call_it() -> None:
    assert TABLE.flag("cuda-graph-max-bs-decode") == TABLE.flags[3]
    assert TABLE.abbreviated("cuda-graph-max-bs") == ("cuda-graph-max-bs",), (
        "the parser doesn't know that name"
    )


def test_a_later_name_never_hides_a_flag_of_that_name() -> None:
    both = FlagTable.of("sglang", "0.5.17", [*TABLE.flags, Flag(name="cuda-graph-max-bs-decode")])
    found = both.flag("cuda-graph-max-bs-decode")
    assert found is not None
    assert found.name == "cuda-graph-max-bs-decode"


def test_flags_that_write_one_setting_say_so() -> None:
    assert TABLE.flags[3].setting == "cuda_graph_max_bs_decode"
    assert TABLE.flags[1].setting == "tp_size_limit"
