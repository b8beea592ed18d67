"""Tokenizers of folders and GGUF files agree with transformers; streaming agrees with decoding at once."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as RustTokenizer

from runtime.engine.chat_template import ChatTemplate, ChatTemplateError
from runtime.engine.model.errors import ModelError
from runtime.engine.model.gguf_tokenizer import make_pre_tokenizer
from runtime.engine.tokenizer import IncrementalDecoder, load_tokenizer

TEXTS = [
    "",
    "Hello world",
    "  two  spaces\n\n\tand tabs ",
    "It's 2024, isn't it? 123456",
    "naïve café, 你好世界, Привет, 👋🏽👨‍👩‍👧",
    "<|im_start|>user\nhi<|im_end|> <|im_end",
    "e\u0301 and \ufffd and \x00",
]
TEMPLATE = (
    "{% for m in messages %}\n"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + eos_token }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>there</b> é"}]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 400,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "eos_token_id": 2,
}


def _trained(pre_tokenizer: pre_tokenizers.PreTokenizer) -> RustTokenizer:
    tokenizer = RustTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def _digits_apart() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tokenizer = _trained(_digits_apart())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        chat_template=TEMPLATE,
    ).save_pretrained(path)
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(str(folder))


@pytest.fixture(scope="module")
def oracle(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_encoding_and_decoding_equal_those_of_transformers(tokenizer, oracle, text):
    ids = tokenizer.encode(text)
    assert ids == oracle.encode(text)
    assert tokenizer.encode(text, add_special_tokens=False) == oracle.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == oracle.decode(ids, skip_special_tokens=True)
    assert tokenizer.decode(ids, skip_special_tokens=False) == oracle.decode(ids)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chats_are_written_as_transformers_writes_them(tokenizer, oracle, add_generation_prompt):
    wanted = oracle.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=add_generation_prompt)
    assert tokenizer.apply_chat_template(CHAT, add_generation_prompt=add_generation_prompt) == wanted


def test_an_encoded_chat_has_the_templates_special_tokens_and_no_others(tokenizer, oracle):
    wanted = oracle.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert tokenizer.encode_chat(CHAT) == wanted


def test_end_tokens_are_those_of_the_config(tokenizer):
    assert tokenizer.eos_token_ids == (2,)


def test_templates_of_older_folders_lie_in_the_tokenizer_config(folder, tmp_path, tokenizer):
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    old = {
        "chat_template": [{"name": "default", "template": TEMPLATE}],
        "eos_token": {"content": "<|im_end|>"},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(old))
    loaded = load_tokenizer(str(tmp_path))
    assert loaded is not None
    assert loaded.apply_chat_template(CHAT) == tokenizer.apply_chat_template(CHAT)


def test_a_folder_without_a_tokenizer_gives_none(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert load_tokenizer(str(tmp_path)) is None


def test_a_damaged_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "NoSuchModel"}}')
    with pytest.raises(ModelError, match=r"tokenizer\.json is no usable tokenizer"):
        load_tokenizer(str(tmp_path))


def test_a_model_without_a_template_refuses_chats(folder, tmp_path):
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    loaded = load_tokenizer(str(tmp_path))
    assert loaded is not None
    with pytest.raises(ChatTemplateError, match="no chat template"):
        loaded.encode_chat(CHAT)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses the messages: roles must alternate"),
        ("{{ messages[0]['content'] + 5 }}", "refuses the messages"),
        ("{{ messages.append(1) }}", "refuses the messages"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "refuses the messages"),
    ],
)
def test_a_template_may_refuse_and_cannot_reach_out(source, message):
    template = ChatTemplate(source, special_tokens={})
    with pytest.raises(ChatTemplateError, match=message):
        template.render(CHAT, add_generation_prompt=True)


def test_a_template_that_does_not_compile_is_an_error_at_once():
    with pytest.raises(ChatTemplateError, match="cannot be compiled"):
        ChatTemplate("{% for %}", special_tokens={})


def _gguf(path: Path, tokenizer: RustTokenizer, split: str, *, has_bos: bool) -> str:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("block_count", "context_length", "embedding_length", "feed_forward_length"):
        writer.add_uint32(f"llama.{key}", 8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIALS else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(has_bos)
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


@pytest.mark.parametrize(
    ("split", "pre_tokenizer"),
    [("smollm", _digits_apart()), ("gpt-2", pre_tokenizers.ByteLevel(add_prefix_space=False))],
)
@pytest.mark.parametrize("text", TEXTS)
def test_a_gguf_tokenizer_equals_the_one_it_was_written_from(tmp_path, split, pre_tokenizer, text):
    original = _trained(pre_tokenizer)
    rebuilt = load_tokenizer(_gguf(tmp_path / "t.gguf", original, split, has_bos=False))
    assert rebuilt is not None
    ids = original.encode(text).ids
    assert rebuilt.encode(text) == ids
    assert rebuilt.decode(ids, skip_special_tokens=False) == original.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("split", "wanted"),
    [
        ("llama-bpe", ["It", "'s", "Ġ", "202", "456", "7", "!Ċ", "Ġx", "ĠĠ", "Ġy"]),
        ("qwen2", ["It", "'s", "Ġ", "2", "0", "2", "4", "5", "6", "7", "!Ċ", "Ġx", "ĠĠ", "Ġy"]),
        ("smollm", ["It", "'s", "Ġ", "2", "0", "2", "4", "5", "6", "7", "!", "Ċ", "Ġx", "ĠĠ", "Ġy"]),
    ],
)
def test_text_is_split_where_the_tokenizer_files_of_the_family_split_it(split, wanted):
    pieces = make_pre_tokenizer(split).pre_tokenize_str("It's 2024567!\n x   y")
    assert [piece for piece, _ in pieces] == wanted


def test_a_gguf_tokenizer_begins_texts_where_the_file_says_so(tmp_path):
    path = _gguf(tmp_path / "t.gguf", _trained(_digits_apart()), "smollm", has_bos=True)
    loaded = load_tokenizer(path)
    assert loaded is not None
    assert loaded.encode("x")[0] == 0
    assert loaded.encode_chat(CHAT)[0] == 1
    assert loaded.apply_chat_template(CHAT).count("<|im_end|>") == 2


@pytest.mark.parametrize(
    ("key", "wanted"), [("gpt2", "tokenizer `gptx`"), ("smollm", "pre-tokenizer `smollx`")]
)
def test_an_unknown_kind_of_gguf_tokenizer_is_named(tmp_path, key, wanted):
    path = Path(_gguf(tmp_path / "t.gguf", _trained(_digits_apart()), "smollm", has_bos=False))
    key_bytes = key.encode()
    path.write_bytes(path.read_bytes().replace(key_bytes, key_bytes[:-1] + b"x"))
    with pytest.raises(ModelError, match=wanted):
        load_tokenizer(str(path))


def _stream(decoder: IncrementalDecoder, ids: list[int]) -> list[str]:
    return [*(decoder.push((token_id,)) for token_id in ids), decoder.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_streamed_text_equals_decoding_at_once(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(_stream(tokenizer.decoder(), ids)) == tokenizer.decode(ids)


def test_no_piece_of_a_stream_has_half_a_character(tokenizer):
    text = "你好 👋🏽 é — ok"
    pieces = _stream(tokenizer.decoder(), tokenizer.encode(text, add_special_tokens=False))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(0, 399), max_size=40), st.booleans(), st.integers(1, 5))
def test_any_tokens_stream_to_what_they_decode_to(tokenizer, ids, skip_special_tokens, group_size):
    """Random ids are mostly invalid UTF-8, cut anywhere."""
    decoder = tokenizer.decoder(skip_special_tokens=skip_special_tokens)
    groups = [ids[start : start + group_size] for start in range(0, len(ids), group_size)]
    text = "".join(decoder.push(group) for group in groups) + decoder.flush()
    assert text == tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


def test_a_sentencepiece_decoder_keeps_its_spaces_when_streamed():
    tokens = ["▁Hello", "▁world", "!", "<0xE2>", "<0x82>", "<0xAC>"]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    rust = RustTokenizer(models.BPE(vocab=vocab, merges=[]))
    rust.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    pieces = _stream(IncrementalDecoder(rust), [0, 1, 3, 4, 5, 2, 1])
    assert pieces == ["Hello", " world", "", "", "€", "!", " world", ""]


def test_flushing_twice_gives_nothing_more(tokenizer):
    decoder = tokenizer.decoder()
    decoder.push(tokenizer.encode("龍", add_special_tokens=False)[:1])
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
