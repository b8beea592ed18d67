"""Let SGLang 0.5.23 import, resolve its arguments and serve where there is no accelerator. For tests alone.

SGLang can compute on CPUs in plain torch (`--device cpu`, attention backend `torch_native`), but its modules
import CUDA packages at the top and its loop uses CUDA streams, events and pinned memory. Taken away are:

- `torchvision`, `triton` and `vllm` become stand-ins: any attribute exists, nothing computes; 1 GB less.
- `torch.cuda.Event`, `Stream`, … do nothing: on a CPU, work is done when the call returns.
- `pin_memory` does nothing: pinning needs a CUDA driver.
- `torch.compile` gives back the function as it is: nothing is compiled here (the topologies for CPUs set
  TORCHDYNAMO_DISABLE), yet each `@torch.compile` makes torch load its compiler, a third of SGLang's start.
- NIXL registers host memory: SGLang 0.5.23 calls all KV memory "VRAM" (disaggregation/nixl/conn.py).

A .pth file imports it into every interpreter of the environment; it acts when `sglang` is imported first.
There it also makes the garbage collector rarer: while modules are imported, nothing is garbage, and to look
for it takes a quarter of the time.
"""

from __future__ import annotations

import functools
import gc
import importlib.abc
import importlib.machinery
import sys
import types

STAND_INS = ("torchvision", "triton", "vllm")
ALLOCATIONS_PER_COLLECTION = 100_000  # 700 otherwise
DECORATORS = ("jit", "autotune", "heuristics")  # of triton, above functions that only a GPU would run


class _AnyType(type):
    """A class whose every attribute is another such class: usable as a base, an annotation, a constant."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _attribute(name)
        setattr(cls, name, value)
        return value


class _Any(metaclass=_AnyType):
    def __init__(self, *_args: object, **_kwargs: object) -> None:
        pass

    def __call__(self, *args: object, **kwargs: object) -> object:
        return _decorator(*args, **kwargs)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Any()

    def __getitem__(self, _key: object) -> object:
        return self

    def __iter__(self):
        return iter(())


def _decorator(*args: object, **kwargs: object) -> object:
    """`@jit` and `@jit(options)` alike leave the function as it is."""
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    return _Any() if not kwargs and not args else lambda function: function


class _ActiveDriver:
    """`triton.runtime.driver.active`: asked at import for the target to compile for."""

    class utils:
        @staticmethod
        def get_device_properties(_index: int) -> dict[str, int]:
            return {"max_shared_mem": 0, "multiprocessor_count": 0}

    @staticmethod
    def get_current_target() -> types.SimpleNamespace:
        return types.SimpleNamespace(backend="cpu", arch=0, warp_size=32)

    @staticmethod
    def get_current_device() -> int:
        return 0


def _attribute(name: str) -> object:
    """What a stand-in or a part of it has under a name."""
    if name == "driver":
        return types.SimpleNamespace(active=_ActiveDriver)
    return _decorator if name in DECORATORS else _AnyType(name, (_Any,), {})


class _StandIn(types.ModuleType):
    __path__ = ()
    __version__ = "3.5.0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _attribute(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the stand-ins, and patches torch and NIXL just before `sglang` is imported."""

    is_patched = False

    def find_spec(self, name, path=None, target=None):
        if name == "sglang" and not self.is_patched:
            self.is_patched = True
            gc.set_threshold(ALLOCATIONS_PER_COLLECTION)
            _patch_torch()
            _patch_nixl()
        if name.partition(".")[0] in STAND_INS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


class _Nothing:
    """A CUDA event and a CUDA stream, on a machine where work is done when the call returns."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        pass

    def record(self, *_args: object) -> _Nothing:
        return self

    def record_event(self, event: _Nothing | None = None) -> _Nothing:
        return event or self

    def wait(self, *_args: object) -> None:
        pass

    wait_event = wait_stream = wait

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: _Nothing) -> float:
        return 0.0

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_args: object) -> bool:
        return False


MAKERS_OF_TENSORS = ("arange", "empty", "empty_like", "empty_strided", "full", "ones", "rand", "randn")
MAKERS_OF_TENSORS += ("tensor", "zeros", "zeros_like")


def _patch_torch() -> None:
    import torch

    if torch.cuda.is_available():
        return
    torch.cuda.Event = torch.cuda.Stream = _Nothing
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *_args, **_kwargs: _Nothing()
    torch.cuda.stream = lambda _stream=None: _Nothing()
    torch.cuda.synchronize = lambda *_args, **_kwargs: None
    torch.compile = lambda model=None, **_kwargs: model or (lambda function: function)
    torch.Tensor.pin_memory = lambda self, *_args, **_kwargs: self
    for name in MAKERS_OF_TENSORS:
        setattr(torch, name, _without_pinning(getattr(torch, name)))


def _without_pinning(make):
    @functools.wraps(make)
    def made(*args, **kwargs):
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)

    return made


def _patch_nixl() -> None:
    import torch

    if torch.cuda.is_available():
        return
    try:
        import nixl._api as api
    except ImportError:
        return
    for name in ("register_memory", "get_reg_descs", "get_xfer_descs", "prep_xfer_dlist"):
        setattr(api.nixl_agent, name, _in_host_memory(getattr(api.nixl_agent, name)))


def _in_host_memory(method):
    def kind(value):
        return "DRAM" if isinstance(value, str) and value == "VRAM" else value

    @functools.wraps(method)
    def called(*args, **kwargs):
        return method(*map(kind, args), **{name: kind(value) for name, value in kwargs.items()})

    return called


sys.meta_path.insert(0, _Finder())
