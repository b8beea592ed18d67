from __future__ import annotations

import pytest

from runtime.bootstrap.token import MAX_TOKEN_BYTES, Token, TokenError, read_token


def test_a_token_is_the_word_in_the_file_and_prints_as_nothing(tmp_path):
    file = tmp_path / "token"
    file.write_text("  open-sesame \n")
    token = read_token(str(file))
    assert token == Token("open-sesame")
    assert "sesame" not in f"{token} {token!r}"


@pytest.mark.parametrize("header", [None, "", "open-sesame", "Bearer open-sesam", "Bearer ö"])
def test_only_the_whole_header_shows_it(header):
    token = Token("open-sesame")
    assert token.is_shown_by("Bearer open-sesame")
    assert not token.is_shown_by(header)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "cannot read the bootstrap token: .*No such file"),
        (b"", "has 0 bytes, wanted 1 to 4096"),
        (b" \n", "has 2 bytes, wanted 1 to 4096"),
        (b"x" * (MAX_TOKEN_BYTES + 1), "has 4097 bytes"),
        (b"two words", "one word of printable ASCII"),
        (b"line\nline", "one word of printable ASCII"),
        ("ö".encode(), "one word of printable ASCII"),
    ],
)
def test_a_file_without_a_token_is_told_by_its_name_alone(tmp_path, content, fault):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TokenError, match=fault) as caught:
        read_token(str(file))
    assert str(file) in str(caught.value)
    assert "words" not in str(caught.value)
