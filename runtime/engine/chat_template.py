"""Chat templates: Jinja programs that come with a model, run in a sandbox as transformers runs them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(ValueError):
    """The conversation does not fit the model's template, in the template's own words."""


class ChatTemplate:
    """One compiled template. Thread-safe."""

    def __init__(self, source: str, *, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens` are the variables `bos_token`, `eos_token`, ... that templates write."""
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise ChatTemplateError(f"the model's chat template cannot be compiled: {error}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool, **variables: Any
    ) -> str:
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                **self._special_tokens,
                **variables,
            )
        except (TemplateError, TypeError) as error:  # the latter from `+` on a message of an unforeseen form
            raise ChatTemplateError(f"the model's chat template refuses the messages: {error}") from None


def _environment() -> ImmutableSandboxedEnvironment:
    """Build what transformers gives its templates, no more: they are written against it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    """Keep characters as they are: Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # local: what a person would call today
