"""Which function made these tensors?

A replay has to be given the function again, and warns where it is another one. So an attempt records, of the transform
and of the collate function: its qualified name, the SHA-256 of its source text, the version its author gives it, and
digests of what is bound to it: arguments of a partial, values of a closure, the state of a callable object, and any
tokenizer among them, by its own serialised content. A tokenizer may also be a global that the function names, or one
that is named by what it calls: functions within it, methods beside it, other functions of the same package.

Digests are the same in every process and on every rank: nothing of an object's place in memory goes into them. What has
no spelling of that kind stands in them by the name of its type alone.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from dataguard.core.digests import sha256_hex
from dataguard.run.events import TransformIdentity
from dataguard.torch.tensors import DTYPES, named_tensors

__all__ = ["identity_of", "name_of", "tokenizer_digest"]

_PLAIN = bool | int | float | complex | str | PurePath | None
_TOLD = ("add_bos_token", "add_eos_token", "model_max_length", "padding_side", "truncation_side")
"""What else decides what a tokenizer of transformers makes."""
_LIBRARIES = {"tokenizers", "transformers", "tiktoken", "sentencepiece"}


def name_of(function: Callable[..., Any]) -> str:
    """The qualified name of a function, of what a partial is bound to, or of the class of a callable object.

    >>> name_of(functools.partial(json.loads, strict=False))
    'json:loads'
    """
    function = _unbound(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    # A worker that was started anew has imported the main script under another name.
    module = "__main__" if named.__module__ == "__mp_main__" else named.__module__
    return f"{module}:{named.__qualname__}"


def identity_of(
    transform: Callable[..., Any],
    *,
    version: str | None = None,
    collate: Callable[..., Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> TransformIdentity:
    """The identity of what makes tensors of records.

    Parameters
    ----------
    transform, collate
        Functions, partials of functions, or callable objects.
    version
        As their author says.
    settings
        What else decides what is made.

    Examples
    --------
    >>> lax = identity_of(functools.partial(json.loads, strict=False))
    >>> lax.name, sorted(lax.parts), lax == identity_of(functools.partial(json.loads, strict=True))
    ('json:loads', ['state'], False)
    """
    parts = _parts_of(transform, "")
    if collate is not None:
        parts["collate"] = name_of(collate)
        source = _source_digest(collate)
        if source is not None:
            parts["collate source"] = source
        parts |= _parts_of(collate, "collate ")
    parts |= {name: _spelled(value) for name, value in (settings or {}).items()}
    return TransformIdentity(name=name_of(transform), source=_source_digest(transform), version=version, parts=parts)


def tokenizer_digest(value: Any) -> str | None:
    """SHA-256 of a tokenizer's serialised content, hexadecimal; None for what is no tokenizer of a library known here.

    Hugging Face tokenizers (both libraries), tiktoken and sentencepiece are known. What they were told last about
    cutting and padding, which a call changes, is no part of it.
    """
    kinds = {kind.__module__.partition(".")[0] for kind in type(value).__mro__} & _LIBRARIES
    if not kinds:
        return None
    if "sentencepiece" in kinds and hasattr(value, "serialized_model_proto"):
        return sha256_hex(value.serialized_model_proto())
    if "tiktoken" in kinds and hasattr(value, "token_byte_values"):
        return _state_digest([value._mergeable_ranks, value._special_tokens, value._pat_str])
    if "tokenizers" in kinds and hasattr(value, "to_str"):
        document = json.loads(value.to_str())
        document.pop("truncation", None)
        document.pop("padding", None)
        return sha256_hex(json.dumps(document, sort_keys=True).encode())
    if "transformers" in kinds and hasattr(value, "get_vocab"):
        backend = getattr(value, "backend_tokenizer", None)
        inner = None if backend is None else tokenizer_digest(backend)
        special = {name: str(token) for name, token in value.special_tokens_map.items()}
        told = {name: getattr(value, name) for name in _TOLD if hasattr(value, name)}
        return _state_digest([type(value).__name__, inner or value.get_vocab(), special, told])
    return None


def _parts_of(function: Callable[..., Any], prefix: str) -> dict[str, str]:
    """Digests of what is bound to a function."""
    parts = {}
    state = _bound(function)
    if state:
        parts[f"{prefix}state"] = _state_digest(state)
    tokenizers = dict(_tokenizers(function))
    for place, digest in tokenizers.items():
        parts[f"{prefix}tokenizer" + (f" {place}" if len(tokenizers) > 1 else "")] = digest
    return parts


def _unbound(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _source_digest(function: Callable[..., Any]) -> str | None:
    function = _unbound(function)
    try:
        source = inspect.getsource(function if hasattr(function, "__qualname__") else type(function))
    except (OSError, TypeError):
        return None
    return sha256_hex(textwrap.dedent(source).encode())


def _bound(function: Callable[..., Any]) -> dict[str, Any]:
    """What is bound to a function, by name: arguments, values of its closure, an object's attributes."""
    bound: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        bound |= {f"argument {i}": value for i, value in enumerate(function.args)}
        bound |= {f"argument {name}": value for name, value in function.keywords.items()}
        function = function.func
    function = inspect.unwrap(function)
    if isinstance(function, types.MethodType):
        bound["self"] = function.__self__
        function = function.__func__
    if isinstance(function, types.FunctionType):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        bound |= {f"closure {name}": value for name, cell in cells if (value := _held(cell)) is not function}
        bound |= {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
        bound |= {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}
    elif not isinstance(function, type | types.BuiltinFunctionType):
        bound |= _attributes(function)
    return bound


def _held(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes of an object, those in slots included, by name."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    own = getattr(type(value), "__getstate__", None) is not getattr(object, "__getstate__", None)
    if own and isinstance(state := value.__getstate__(), dict):
        return state  # what its author says it is made of; the rest is of one process
    names = [name for kind in type(value).__mro__ for name in _slots_of(kind) if hasattr(value, name)]
    return {**{name: getattr(value, name) for name in names}, **getattr(value, "__dict__", {})}


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return tuple(
        name for name in ((slots,) if isinstance(slots, str) else slots) if name not in {"__dict__", "__weakref__"}
    )


def _tokenizers(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Where tokenizers are found, and their digests."""
    yield from _tokenizers_in(_bound(function), "", {})
    yield from sorted(_global_tokenizers(_unbound(function)).items())


def _global_tokenizers(function: Any) -> dict[str, str]:
    """Tokenizers that a function or what it calls names among globals of the modules, and their digests."""
    found: dict[str, str] = {}
    home = _package(function if hasattr(function, "__module__") else type(function))
    waiting = [each for each in _functions_of(function) if _package(each) == home]
    known = set(map(id, waiting))
    first = waiting[0].__module__ if waiting else None
    while waiting:
        calling = waiting.pop()
        names = {name for code in _codes(calling.__code__) for name in code.co_names}
        for name, value in [(name, calling.__globals__[name]) for name in names if name in calling.__globals__]:
            digest = tokenizer_digest(value)
            if digest is not None:
                found[f"global {name if calling.__module__ == first else f'{calling.__module__}.{name}'}"] = digest
                continue
            called = [each for each in _functions_of(value) if _package(each) == home and id(each) not in known]
            known.update(map(id, called))
            waiting += called
    return found


def _functions_of(value: Any) -> list[types.FunctionType]:
    """What may run where a value is called: a function, or all methods of a class."""
    if isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.FunctionType):
        return [inspect.unwrap(value)] if isinstance(inspect.unwrap(value), types.FunctionType) else [value]
    if isinstance(value, types.MethodType):
        value = value.__self__
    kinds = (value if isinstance(value, type) else type(value)).__mro__
    return [each for kind in kinds for each in vars(kind).values() if isinstance(each, types.FunctionType)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of what is defined within it: comprehensions, lambdas, functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _package(named: Any) -> str:
    return str(named.__module__ or "").partition(".")[0]


def _tokenizers_in(value: Any, place: str, seen: dict[int, Any]) -> Iterator[tuple[str, str]]:
    """Tokenizers within a value, each object looked at once."""
    if id(value) in seen or isinstance(value, _PLAIN | bytes | bytearray | torch.Tensor | np.ndarray):
        return
    seen[id(value)] = value
    digest = tokenizer_digest(value)
    if digest is not None:
        yield place, digest
        return
    if isinstance(value, Mapping):
        inner = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        inner = [(str(i), each) for i, each in enumerate(value)]
    elif isinstance(value, type | types.ModuleType | types.FunctionType):
        return
    else:
        inner = list(_attributes(value).items())
    for name, each in inner:
        yield from _tokenizers_in(each, f"{place}.{name}".lstrip("."), seen)


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _state_digest(value: Any) -> str:
    return _digest_of(value, {}).hex()


def _digest_of(value: Any, known: dict[int, tuple[Any, bytes]]) -> bytes:
    """SHA-256 of a value, the same in every process; of each object once, whatever refers to it.

    What refers to itself is known by its type where it comes again.
    """
    kind = f"{type(value).__module__}.{type(value).__qualname__}".encode()
    if isinstance(value, _PLAIN):
        return _joined(kind, str(value).encode())
    if id(value) not in known:
        known[id(value)] = value, _joined(b"again", kind)
        known[id(value)] = value, _joined(*_pieces(value, kind, known))
    return known[id(value)][1]


def _joined(*pieces: bytes) -> bytes:
    state = hashlib.sha256()
    for piece in pieces:
        state.update(len(piece).to_bytes(8, "little"))
        state.update(piece)
    return state.digest()


def _pieces(value: Any, kind: bytes, known: dict[int, tuple[Any, bytes]]) -> Iterator[bytes]:
    """What a value is made of, as bytes."""
    yield kind
    if isinstance(value, bytes | bytearray):
        yield bytes(value)
    elif isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield bytes(named_tensors({"": value})[""].data) if value.dtype in DTYPES else b""
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield value.tobytes() if value.dtype != object else _digest_of(value.tolist(), known)
    elif (digest := tokenizer_digest(value)) is not None:
        yield digest.encode()
    elif isinstance(value, Mapping):
        yield from sorted(_joined(_digest_of(key, known), _digest_of(each, known)) for key, each in value.items())
    elif isinstance(value, set | frozenset):
        yield from sorted(_digest_of(each, known) for each in value)
    elif isinstance(value, list | tuple):
        yield from (_digest_of(each, known) for each in value)
    elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        yield getattr(value, "__qualname__", value.__name__).encode()
    elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        yield name_of(value).encode()
        yield (_source_digest(value) or "").encode()
        yield _digest_of(_bound(value), known)
    else:
        yield _digest_of(_attributes(value), known)
