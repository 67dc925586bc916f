"""Which parts of a model are told apart?

The *blocks* of a model are the entries of its outermost lists of like modules (``layers.0``, ``layers.1``, ...); a
model without such a list has its direct children for blocks. A parameter belongs to the block that holds it, else to
the module that owns it (``embed``, ``lm_head``). Parameters that are tied count once, under their first name; frozen
ones do not count. What wrappers (DistributedDataParallel, torch.compile, FSDP, checkpointing) put into names comes off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from torch import nn

from dataguard.run.records import TELEMETRY_NAME_BYTES

__all__ = ["Parts", "is_attention", "is_compiled", "parts_of", "value_name"]

_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_ROOT = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A model taken apart."""

    blocks: dict[str, nn.Module]
    """Path -> module."""
    attentions: dict[str, nn.Module]
    """Path -> module that is called an attention; the outermost of nested ones."""
    parameters: dict[str, list[nn.Parameter]]
    """Block, or path of the module that owns them -> its trainable parameters."""
    compiled: tuple[str, ...]
    """Paths of modules that torch.compile runs: what is inside cannot be seen."""

    def with_parameters(self, others: Mapping[str, list[nn.Parameter]]) -> Parts:
        """The same with more parameters, each once."""
        joined = {part: list(held) for part, held in self.parameters.items()}
        known = {id(parameter) for held in joined.values() for parameter in held}
        for part, held in others.items():
            joined.setdefault(part, []).extend(parameter for parameter in held if id(parameter) not in known)
        return replace(self, parameters=joined)


def parts_of(model: nn.Module) -> Parts:
    """Take a model apart.

    >>> layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    >>> model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "layers": layers})
    >>> parts = parts_of(model)
    >>> list(parts.blocks), list(parts.parameters)
    (['layers.0', 'layers.1'], ['embed', 'layers.0', 'layers.1'])
    """
    compiled = [name for name, module in model.named_modules() if is_compiled(module)]
    hidden = tuple(compiled)
    blocks = _outermost(
        (f"{name}.{key}" if name else key, entry)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and _alike(list(module.children()))
        for key, entry in module.named_children()
    )
    if not blocks:
        blocks = {name: child for name, child in model.named_children() if _holds_parameters(child)}
    attentions = _outermost(
        (name, module)
        for name, module in model.named_modules()
        if name and name not in blocks and is_attention(name, module)
    )
    seen = {name: module for name, module in blocks.items() if not _inside(name, hidden, module)}
    parameters: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameters.setdefault(_part(name, blocks), []).append(parameter)
    return Parts(
        blocks={_plain(name): module for name, module in seen.items()},
        attentions={_plain(name): module for name, module in attentions.items() if not _inside(name, hidden, module)},
        parameters=parameters,
        compiled=tuple(_plain(name) or _ROOT for name in compiled),
    )


def is_attention(name: str, module: nn.Module) -> bool:
    """Whether a module is called an attention, by its class or by the last part of its path.

    >>> is_attention("layers.0.self_attn", nn.Identity()), is_attention("layers.0.mlp", nn.Identity())
    (True, False)
    """
    if isinstance(module, nn.ModuleList):
        return False
    return any("att" in text.lower() for text in (name.rpartition(".")[2], type(module).__name__))


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile runs this module, as a wrapper or in place (``module.compile()``)."""
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def value_name(metric: str, part: str, taken: Iterable[str] = ()) -> str:
    """``METRIC/PART``, its beginning left out where it is too long for a name of telemetry.

    >>> value_name("grad_norm", "layers.11")
    'grad_norm/layers.11'
    >>> len(value_name("grad_norm", "a" * 100).encode())
    64
    """
    name = f"{metric}/{part}"
    others = set(taken)
    number = 0
    while len(name.encode()) > TELEMETRY_NAME_BYTES or name in others:
        mark = f"~{number or ''}"
        room = TELEMETRY_NAME_BYTES - len(f"{metric}/{mark}".encode())
        name = f"{metric}/{mark}{part.encode()[-room:].decode('utf-8', 'ignore')}"
        number += 1
    return name


def _outermost(modules: Iterable[tuple[str, nn.Module]]) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    for name, module in modules:
        if not any(name.startswith(f"{outer}.") for outer in found):
            found.setdefault(name, module)
    return found


def _alike(modules: list[nn.Module]) -> bool:
    kinds = {type(getattr(module, "_orig_mod", module)) for module in modules}
    return len(modules) > 1 and len(kinds) == 1 and all(map(_holds_parameters, modules))


def _holds_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _inside(name: str, compiled: tuple[str, ...], module: nn.Module) -> bool:
    """Whether a hook on this module would be traced by torch.compile, or passed over by it."""
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    return any(name.startswith(f"{outer}." if outer else "") and name != outer for outer in compiled)


def _part(name: str, blocks: dict[str, nn.Module]) -> str:
    for block in blocks:
        if name.startswith(f"{block}."):
            return _plain(block)
    return _plain(name.rpartition(".")[0]) or _ROOT


def _plain(name: str) -> str:
    dotted = f"{name}."
    for wrapper in _WRAPPERS:
        dotted = dotted.removeprefix(wrapper).replace(f".{wrapper}", ".")
    return dotted.removesuffix(".")
