"""Text to token ids and back, and conversations to prompts, with the tokenizer that comes with the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from runtime.engine.chat_template import ChatTemplate, ChatTemplateError
from runtime.engine.detokenizer import IncrementalDecoder
from runtime.engine.model.checkpoint import local_path
from runtime.engine.model.config import read_folder_config
from runtime.engine.model.errors import ModelError
from runtime.engine.model.gguf_file import GGUFFile
from runtime.engine.model.gguf_tokenizer import read_gguf_tokenizer
from runtime.engine.model.gguf_weights import read_gguf_config
from runtime.engine.model.json_file import read_json_object

__all__ = ["ChatTemplateError", "IncrementalDecoder", "Tokenizer", "load_tokenizer"]

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """Thread-safe: the Rust tokenizer and the compiled template hold no state between calls."""

    def __init__(
        self,
        rust_tokenizer: RustTokenizer,
        *,
        chat_template: ChatTemplate | None,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self._rust_tokenizer = rust_tokenizer
        self._chat_template = chat_template
        self.eos_token_ids = eos_token_ids

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Give the ids of `text`, with the model's begin-of-text token if it has one and it is asked for."""
        return self._rust_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return self._rust_tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def decoder(self, *, skip_special_tokens: bool = True) -> IncrementalDecoder:
        """Make the streaming counterpart of `decode` for one sequence."""
        return IncrementalDecoder(self._rust_tokenizer, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Write a conversation as the model's prompt. Raises `ChatTemplateError`."""
        if self._chat_template is None:
            raise ChatTemplateError("this model has no chat template: send a finished prompt")
        return self._chat_template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The prompt's ids, up to where the answer begins. The template writes its special tokens itself."""
        return self.encode(self.apply_chat_template(messages), add_special_tokens=False)


def load_tokenizer(model_path: str) -> Tokenizer | None:
    """Read the tokenizer of a folder, GGUF file or `builtin:NAME`; None if the folder has none."""
    path = local_path(model_path)
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def _from_folder(folder: Path) -> Tokenizer | None:
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    try:
        rust_tokenizer = RustTokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare `Exception` for whatever it dislikes
        raise ModelError(f"{path} is no usable tokenizer: {error}") from None
    # A file may carry the padding and cutting of its training; a prompt is neither padded nor cut.
    rust_tokenizer.no_padding()
    rust_tokenizer.no_truncation()
    return Tokenizer(
        rust_tokenizer,
        chat_template=_folder_template(folder),
        eos_token_ids=read_folder_config(folder).eos_token_ids,
    )


def _folder_template(folder: Path) -> ChatTemplate | None:
    path = folder / "tokenizer_config.json"
    config = read_json_object(path) if path.exists() else {}
    template_path = folder / "chat_template.jinja"
    source = template_path.read_text("utf-8") if template_path.exists() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
    if source is None:
        return None
    special_tokens = {name: _content(config[name]) for name in _SPECIAL_TOKENS if config.get(name)}
    return ChatTemplate(source, special_tokens=special_tokens)


def _content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else token["content"]


def _from_gguf(path: Path) -> Tokenizer:
    file = GGUFFile(path)
    rust_tokenizer, special_tokens = read_gguf_tokenizer(file)
    source = file.metadata.get("tokenizer.chat_template")
    return Tokenizer(
        rust_tokenizer,
        chat_template=None if source is None else ChatTemplate(source, special_tokens=special_tokens),
        eos_token_ids=read_gguf_config(file).eos_token_ids,
    )
