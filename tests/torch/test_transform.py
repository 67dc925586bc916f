"""Is the identity of a transform the same in every process, and another where it would make other tensors?"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from dataguard.torch.transform import identity_of, name_of, tokenizer_digest
from dataguard.torch.transforms import ByteTransform
from tests.support.processes import environment


def plain(record: Any) -> Any:
    return record


def with_default(record: Any, size: int = 3) -> Any:
    return record


def made(size: int, unused: Any = None) -> Callable[[Any], Any]:
    def inner(record: Any) -> Any:
        return record, size

    return inner


@dataclass
class Settings:
    size: int
    names: Any = ("a", "b")

    def __call__(self, record: Any) -> Any:
        return record

    def method(self, record: Any) -> Any:
        return record


class Loose:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __call__(self, record: Any) -> Any:
        return record


def test_names() -> None:
    here = __name__
    assert name_of(plain) == f"{here}:plain"
    assert name_of(functools.partial(functools.partial(plain), 1)) == f"{here}:plain"
    assert name_of(Settings(1)) == f"{here}:Settings"
    assert name_of(Settings(1).method) == f"{here}:Settings.method"
    assert name_of(made(1)) == f"{here}:made.<locals>.inner"
    assert name_of(len) == "builtins:len"


class Kept(Loose):
    """Says itself what it is made of."""

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.__dict__["size"]}


SAME: list[tuple[Any, Any]] = [
    (plain, plain),
    (Settings(1), Settings(1)),
    (made(2), made(2)),
    (functools.partial(plain, size=1, name="x"), functools.partial(plain, name="x", size=1)),
    (Loose(a=1, b=2), Loose(b=2, a=1)),
    (Loose(a={1, 2, 3}, b={"x": 1, "y": 2}), Loose(a={3, 2, 1}, b={"y": 2, "x": 1})),
    (Loose(a=torch.arange(3)), Loose(a=torch.arange(3))),
    (Loose(a=np.arange(3)), Loose(a=np.arange(3))),
    (Loose(a=Loose(b=object())), Loose(a=Loose(b=object()))),
    (Loose(f=plain), Loose(f=plain)),
    (Kept(size=1, begun=1.5), Kept(size=1, begun=2.5)),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_transforms_are_the_same(one: Any, other: Any) -> None:
    assert identity_of(one) == identity_of(other)


DIFFERENT: list[tuple[Any, Any]] = [
    (plain, with_default),
    (Settings(1), Settings(2)),
    (Settings(1).method, Settings(2).method),
    (made(2), made(3)),
    (made(2), made(True)),
    (functools.partial(plain, 1), functools.partial(plain, 2)),
    (functools.partial(plain, 1), functools.partial(plain, "1")),
    (functools.partial(plain, size=1), functools.partial(plain, length=1)),
    (Loose(a=[1, 2]), Loose(a=[2, 1])),
    (Loose(a=[1, [2]]), Loose(a=[1, 2])),
    (Loose(a=torch.arange(3)), Loose(a=torch.arange(3).float())),
    (Loose(a=torch.tensor([1, 2])), Loose(a=torch.tensor([1, 3]))),
    (Loose(a=np.zeros(2)), Loose(a=np.zeros(3))),
    (Loose(f=plain), Loose(f=with_default)),
    (Kept(size=1), Kept(size=2)),
    (Loose(f=functools.partial(plain, 1)), Loose(f=functools.partial(plain, 2))),
    (ByteTransform(8), ByteTransform(9)),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_transforms_differ(one: Any, other: Any) -> None:
    assert identity_of(one) != identity_of(other)


def test_version_collate_and_settings_are_part_of_it() -> None:
    base = identity_of(plain)
    assert base.parts == {}
    assert base.source is not None
    assert identity_of(plain, version="2").version == "2"
    with_collate = identity_of(plain, collate=made(1), settings={"ignore index": -100})
    assert with_collate.parts["collate"].endswith("made.<locals>.inner")
    assert with_collate != identity_of(plain, collate=made(2), settings={"ignore index": -100})
    assert with_collate.parts["ignore index"] == "-100"


def test_what_refers_to_itself_has_an_end() -> None:
    loop = Loose(a=1)
    loop.inner = [loop]
    assert identity_of(loop).parts["state"] == identity_of(loop).parts["state"]


def test_what_is_shared_is_looked_at_once() -> None:
    """A graph of 60 levels, each holding the next twice, has 2**60 paths."""
    node: Any = Loose(end=1)
    for _ in range(60):
        node = Loose(left=node, right=node)
    apart: Any = Loose(left=Loose(end=1), right=Loose(end=1))
    together = Loose(end=1)
    assert identity_of(node).parts["state"]
    assert identity_of(apart) == identity_of(Loose(left=together, right=together))


def test_a_function_without_source_has_none() -> None:
    made_up: dict[str, Any] = {}
    exec("def f(record): return record", made_up)
    assert identity_of(made_up["f"]).source is None


def described() -> str:
    """The identities of `SAME`, in this process."""
    return json.dumps([[identity_of(one).parts, identity_of(one).source] for one, _ in SAME])


def test_another_process_says_the_same() -> None:
    code = "from tests.torch.test_transform import described; print(described())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(PYTHONHASHSEED="7"), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == described()


# -- tokenizers


def words(*more: str) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: i for i, word in enumerate(("[UNK]", "one", "two", *more))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return tokenizer


TOKENIZER: Any = None


def by_global(record: Any) -> Any:
    return TOKENIZER.encode(record.text)


def test_a_tokenizer_is_known_by_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    one, same, other = words(), words(), words("three")
    assert tokenizer_digest(one) == tokenizer_digest(same) != tokenizer_digest(other)
    # What a call changes is no part of it.
    same.enable_truncation(4)
    same.enable_padding(length=4)
    assert tokenizer_digest(one) == tokenizer_digest(same)
    digest = tokenizer_digest(one)
    assert identity_of(functools.partial(plain, tokenizer=one)).parts["tokenizer"] == digest
    assert identity_of(Loose(inner=Loose(tok=one))).parts["tokenizer"] == digest
    monkeypatch.setattr(sys.modules[__name__], "TOKENIZER", one)
    assert identity_of(by_global).parts == {"tokenizer": digest}
    both = identity_of(Loose(a=one, b=other)).parts
    assert (both["tokenizer a"], both["tokenizer b"]) == (digest, tokenizer_digest(other))


def in_a_comprehension(record: Any) -> Any:
    return [TOKENIZER.encode(word) for word in record.text.split()]


def by_what_it_calls(record: Any) -> Any:
    return in_a_comprehension(record)


class ByMethod:
    def encode(self, record: Any) -> Any:
        return sorted(record.text.split(), key=lambda word: TOKENIZER.encode(word).ids)

    def __call__(self, record: Any) -> Any:
        return self.encode(record)


@pytest.mark.parametrize(
    "function",
    [in_a_comprehension, by_what_it_calls, ByMethod(), ByMethod().encode, functools.partial(by_what_it_calls)],
)
def test_a_tokenizer_is_found_wherever_what_runs_names_it(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TOKENIZER", words())
    assert identity_of(function).parts["tokenizer"] == tokenizer_digest(words())
    monkeypatch.setattr(sys.modules[__name__], "TOKENIZER", words("three"))
    assert identity_of(function).parts["tokenizer"] == tokenizer_digest(words("three"))


def test_a_main_script_has_one_name_in_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByMethod, "__module__", "__mp_main__")
    assert name_of(ByMethod()) == "__main__:ByMethod"


def test_a_fast_tokenizer_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")

    def fast(tokenizer: Any, **settings: Any) -> Any:
        return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **settings)

    one = fast(words())
    digest = tokenizer_digest(one)
    one("one two two", truncation=True, max_length=2)
    assert tokenizer_digest(one) == digest == tokenizer_digest(fast(words()))
    assert digest != tokenizer_digest(fast(words("three")))
    assert digest != tokenizer_digest(fast(words(), pad_token="two"))
    assert digest != tokenizer_digest(fast(words(), padding_side="left"))
    assert digest != tokenizer_digest(fast(words(), model_max_length=4))
    assert identity_of(functools.partial(plain, one)).parts["tokenizer"] == digest


def test_tiktoken_and_sentencepiece(tmp_path: Any) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    sentencepiece = pytest.importorskip("sentencepiece")

    def encoding(**special: int) -> Any:
        ranks = {bytes([i]): i for i in range(256)}
        return tiktoken.Encoding("mine", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens=special)

    assert tokenizer_digest(encoding(end=256)) == tokenizer_digest(encoding(end=256))
    assert tokenizer_digest(encoding(end=256)) != tokenizer_digest(encoding(stop=256))

    models = []
    for size in (20, 22):
        (tmp_path / "text").write_text("a quick brown fox jumps over the lazy dog\n" * 20)
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / "text"),
            model_prefix=str(tmp_path / f"m{size}"),
            vocab_size=size,
            model_type="char",
            minloglevel=2,
            hard_vocab_limit=False,
        )
        models.append(sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"m{size}.model")))
    again = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m20.model"))
    assert tokenizer_digest(models[0]) == tokenizer_digest(again) != tokenizer_digest(models[1])


def test_what_is_no_tokenizer_has_no_digest() -> None:
    assert tokenizer_digest(object()) is None
    assert tokenizer_digest(plain) is None
