"""Devices that a scheduler gave, and a plan's indices into them."""

from __future__ import annotations

import pytest

from runtime.shim.given import NotGiven, given_devices


@pytest.mark.parametrize(
    ("wanted", "given", "found"),
    [
        (
            {"CUDA_VISIBLE_DEVICES": "0,1"},
            {"CUDA_VISIBLE_DEVICES": "2,3,6,7"},
            {"CUDA_VISIBLE_DEVICES": "2,3"},
        ),
        ({"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "2,3,6,7"}, {"CUDA_VISIBLE_DEVICES": "7"}),
        (
            {"ROCR_VISIBLE_DEVICES": "0", "ASCEND_RT_VISIBLE_DEVICES": "1"},
            {"ROCR_VISIBLE_DEVICES": "5", "ASCEND_RT_VISIBLE_DEVICES": "4,6"},
            {"ROCR_VISIBLE_DEVICES": "5", "ASCEND_RT_VISIBLE_DEVICES": "6"},
        ),
        (
            {"CUDA_VISIBLE_DEVICES": "1"},
            {"CUDA_VISIBLE_DEVICES": "GPU-a1,GPU-b2"},
            {"CUDA_VISIBLE_DEVICES": "GPU-b2"},
        ),
    ],
)
def test_indices_stand_for_places_in_what_was_given(wanted, given, found):
    assert given_devices(wanted, given) == found


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, {}),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": ""}),
        ({}, {"CUDA_VISIBLE_DEVICES": "2,3"}),
        ({"CUDA_VISIBLE_DEVICES": None}, {"CUDA_VISIBLE_DEVICES": "2,3"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}),
        (
            {"HIP_VISIBLE_DEVICES": "0"},
            {"ROCR_VISIBLE_DEVICES": "4,5"},
        ),  # HIP counts what ROCR leaves visible
    ],
)
def test_what_the_scheduler_says_nothing_of_stays_as_planned(wanted, given):
    assert given_devices(wanted, given) == {}


@pytest.mark.parametrize(("wanted", "given"), [("0,4", "2,3,6,7"), ("0", "NoDevFiles"), ("1", "GPU-a1")])
def test_a_device_that_was_not_given_is_told_with_both_lists(wanted, given):
    with pytest.raises(NotGiven, match=f"is `{wanted}`, but the step's is `{given}`"):
        given_devices({"CUDA_VISIBLE_DEVICES": wanted}, {"CUDA_VISIBLE_DEVICES": given})
