"""Rebuild a byte-level BPE tokenizer from the metadata of a GGUF file.

A GGUF file has vocabulary and merges, but only the *name* of how text is split before the merges. The splits
below are those of the tokenizer.json files that the names stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from runtime.engine.model.errors import ModelError
from runtime.engine.model.gguf_file import GGUFFile

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|\p{{N}}|{_REST}"


def read_gguf_tokenizer(file: GGUFFile) -> tuple[Tokenizer, dict[str, str]]:
    """Give the tokenizer and the text of its special tokens by template variable (`bos_token`, ...)."""
    metadata = file.metadata
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelError(
            f"tokenizer `{kind}` in {file.path} is unknown, byte-level BPE (`gpt2`) can be rebuilt"
        )
    split = metadata.get("tokenizer.ggml.pre", "default")
    if split not in _SPLITS:
        known = ", ".join(f"`{name}`" for name in _SPLITS)
        raise ModelError(f"pre-tokenizer `{split}` in {file.path} is unknown, known are {known}")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=split == "llama-bpe"))
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = make_pre_tokenizer(split)
    tokenizer.decoder = decoders.ByteLevel()
    _add_special_tokens(tokenizer, tokens, metadata.get("tokenizer.ggml.token_type", []))
    special_tokens = _special_tokens(metadata, tokens)
    if metadata.get("tokenizer.ggml.add_bos_token", split == "llama-bpe") and "bos_token" in special_tokens:
        tokenizer.post_processor = _begin_with(special_tokens["bos_token"], vocab)
    return tokenizer, special_tokens


def make_pre_tokenizer(split: str) -> pre_tokenizers.PreTokenizer:
    """Make the splitter that `tokenizer.ggml.pre` names."""
    return _SPLITS[split]()


def _byte_level() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_apart() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()])


def _by_pattern(pattern: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    return lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


_SPLITS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "default": _byte_level,
    "gpt-2": _byte_level,
    "smollm": _digits_apart,
    "llama-bpe": _by_pattern(_LLAMA3),
    "qwen2": _by_pattern(_QWEN2),
}


def _add_special_tokens(tokenizer: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    """Mark the tokens that are never split; they are in the vocabulary already and keep their ids."""
    for token, kind in zip(tokens, kinds, strict=False):
        if kind == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])


def _special_tokens(metadata: dict[str, Any], tokens: list[str]) -> dict[str, str]:
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {name: tokens[token_id] for name, token_id in ids.items() if token_id is not None}


def _begin_with(token: str, vocab: dict[str, int]) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, vocab[token])]
    )
