"""Load everything that a server serves. Importing this imports torch: only the loading thread does."""

from __future__ import annotations

from pathlib import Path

from runtime.engine.build import Ranks, describe_model, only_rank, start_engine
from runtime.engine.chat_template import ChatTemplateError
from runtime.engine.model.config import ARCHITECTURES, ModelConfig
from runtime.engine.model.errors import ModelError
from runtime.engine.ranks.meeting import meet, rank_shape
from runtime.engine.ranks.opening import EngineStartError
from runtime.engine.ranks.processes import Node, end_process
from runtime.engine.runner import load_runner
from runtime.engine.server.lifecycle import LoadError
from runtime.engine.server.state import ServedModel
from runtime.engine.settings import EngineSettings
from runtime.engine.tokenizer import load_tokenizer


def load_model(settings: EngineSettings, node: Node | None = None) -> ServedModel:
    """Read the model and start its engine, with the other ranks of `node`. Raises `LoadError`."""
    try:
        tokenizer = load_tokenizer(settings.model_path)
        ranks = only_rank() if node is None else _join(settings, node)
        runner = load_runner(settings, ranks.shape, ranks.comm)
        context_len = _context_len(settings, runner.config)
        engine = start_engine(settings, describe_model(settings, runner, ranks.shape), ranks)
    except (ModelError, ChatTemplateError, EngineStartError) as fault:
        raise LoadError(str(fault)) from fault
    layout = runner.pool.layout
    return ServedModel(
        engine=engine,
        codec=tokenizer,
        vocab_size=runner.config.vocab_size,
        context_len=context_len,
        num_pool_tokens=layout.num_pages * layout.page_size,
        model_type=runner.config.architecture,
        architecture=_architecture_name(runner.config),
        tokenizer_path=_tokenizer_folder(settings.model_path),
    )


def _join(settings: EngineSettings, node: Node) -> Ranks:
    comm = meet(settings, node.meeting)
    return Ranks(comm=comm, shape=rank_shape(settings), on_lost=end_process, processes=node.others)


def _context_len(settings: EngineSettings, config: ModelConfig) -> int:
    """Rotary positions go on beyond the context that a model was trained for, into nonsense: refuse to."""
    wanted, most = settings.context_length, config.max_position
    if wanted is not None and wanted > most:
        raise ModelError(f"--context-length is {wanted}, the model knows {most} positions")
    return most if wanted is None else wanted


def _architecture_name(config: ModelConfig) -> str:
    return next(name for name, architecture in ARCHITECTURES.items() if architecture == config.architecture)


def _tokenizer_folder(model_path: str) -> str | None:
    """The model's own folder, if a router can load a tokenizer from it."""
    return model_path if (Path(model_path) / "tokenizer.json").is_file() else None
