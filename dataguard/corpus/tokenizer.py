"""Which text does a token id stand for, by the tokenizer's own file?

For looking at token samples. A file is one of three, told apart by its content and not by its name:

1. The JSON of Hugging Face `tokenizers` (``tokenizer.json``). Its own decoder says how the spelling of a token becomes
   bytes; the steps that work on one token at a time are done here, so that a token that is part of a character is that
   part. A decoder that is none of those is asked token by token.
2. A sentencepiece model. Byte pieces are bytes, the sign for a blank is a blank.
3. A ranks file of tiktoken: base64 of the bytes, a blank, the id. It holds no special tokens; those of the encodings
   that OpenAI published are known by the ids that the file does hold.

The libraries come with the ``text`` extra and are imported when a file of theirs is opened; nothing is ever fetched.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dataguard.corpus.tokenizer_json import spelling_of
from dataguard.errors import InputError, UsageError

__all__ = ["Token", "TokenizerFile", "open_tokenizer"]

TokenizerKind = Literal["tokenizers", "sentencepiece", "tiktoken"]

_RANK = re.compile(rb"[A-Za-z0-9+/]*={0,2} [0-9]{1,10}\r?\n?")
_MOST_IDS = 1 << 32
_ENDOFTEXT = "<|endoftext|>"
# (ids in the file, greatest of them) -> what the published encoding adds to them.
_PUBLISHED: dict[tuple[int, int], dict[int, str]] = {
    (50_256, 50_255): {50_256: _ENDOFTEXT},  # r50k_base, which is GPT-2's
    (50_280, 50_280): {50_256: _ENDOFTEXT},  # p50k_base
    (100_256, 100_255): {  # cl100k_base
        100_257: _ENDOFTEXT,
        100_258: "<|fim_prefix|>",
        100_259: "<|fim_middle|>",
        100_260: "<|fim_suffix|>",
        100_276: "<|endofprompt|>",
    },
    (199_998, 199_997): {199_999: _ENDOFTEXT, 200_018: "<|endofprompt|>"},  # o200k_base
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What an id stands for."""

    content: bytes
    """Its bytes; not always whole characters."""
    special: bool = False
    """Whether it is no text but a sign of the tokenizer's, such as the end of a document; `content` is its name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenizerFile:
    """A tokenizer, as far as showing ids needs it."""

    kind: TokenizerKind
    num_tokens: int
    """Ids it knows."""
    _look_up: Callable[[int], Token | None] = field(repr=False)
    _known: dict[int, Token | None] = field(default_factory=dict, repr=False)

    def token(self, token_id: int) -> Token | None:
        """What an id stands for; None for one that the tokenizer does not have. Any integer may be asked for."""
        if token_id not in self._known:
            self._known[token_id] = self._look_up(token_id) if 0 <= token_id < _MOST_IDS else None
        return self._known[token_id]


def open_tokenizer(path: str | Path) -> TokenizerFile:
    r"""Open a tokenizer's file.

    Raises
    ------
    UsageError
        There is no such file, or the library that reads it is not installed.
    InputError
        The file is none of a tokenizer, or damaged.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.tiktoken")
    >>> _ = path.write_bytes(b"aGVsbG8= 0\n4oI= 1\n")
    >>> tokenizer = open_tokenizer(path)
    >>> tokenizer.token(0).content, tokenizer.token(1).content, tokenizer.token(2)
    (b'hello', b'\xe2\x82', None)
    """
    try:
        content = Path(path).read_bytes()
    except IsADirectoryError as error:
        raise UsageError(
            f"the tokenizer {path} is a folder", todo="name the file in it, e.g. tokenizer.json"
        ) from error
    except OSError as error:
        raise UsageError(f"the tokenizer {path} cannot be read", found=error.strerror) from error
    head = content.lstrip()[:1]
    if head == b"{":
        return _of_json(content, path)
    if _RANK.fullmatch(content[: content.find(b"\n") + 1] or content):
        return _of_ranks(content, path)
    if content[:1] == b"\n":  # the first field of the model, its pieces
        return _of_model(content, path)
    raise InputError(
        f"{path} is no file of a tokenizer",
        found=f"it begins with {content[:16]!r}" if content else "it is empty",
        allowed="tokenizer.json of Hugging Face tokenizers, a sentencepiece model, a ranks file of tiktoken",
    )


def _of_json(content: bytes, path: str | Path) -> TokenizerFile:
    import orjson

    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the tokenizer {path} is damaged", found=f"no JSON: {error}") from error
    if not isinstance(document.get("model"), dict):
        raise InputError(
            f"{path} is no tokenizer.json of Hugging Face tokenizers",
            found="JSON without a model",
            todo="a vocabulary with its merges becomes one: tokenizers.ByteLevelBPETokenizer(VOCAB, MERGES).save(FILE)",
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _lacking(path, "tokenizers", error) from error
    try:
        # The library raises bare exceptions.
        tokenizer = Tokenizer.from_str(content.decode())
    except Exception as error:
        raise InputError(f"the tokenizer {path} is damaged", found=_first_line(error)) from error
    special = {i for i, added in tokenizer.get_added_tokens_decoder().items() if added.special}
    spell = spelling_of(document.get("decoder"))

    def look_up(token_id: int) -> Token | None:
        spelled = tokenizer.id_to_token(token_id)
        if spelled is None:
            return None
        if token_id in special:
            return Token(content=spelled.encode(), special=True)
        if spell is None:
            return Token(content=tokenizer.decode([token_id], skip_special_tokens=False).encode())
        return Token(content=spell(spelled))

    return TokenizerFile(kind="tokenizers", num_tokens=tokenizer.get_vocab_size(), _look_up=look_up)


def _of_model(content: bytes, path: str | Path) -> TokenizerFile:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise _lacking(path, "sentencepiece", error) from error
    model: Any = SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(content)
        num_pieces = int(model.GetPieceSize())
    except Exception as error:
        raise InputError(f"{path} is no model of sentencepiece, or damaged", found=_first_line(error)) from error
    if not num_pieces:
        raise InputError(f"the tokenizer {path} is damaged", found="a model without a piece")

    def look_up(token_id: int) -> Token | None:
        if token_id >= num_pieces:
            return None
        piece = model.IdToPiece(token_id)
        if model.IsByte(token_id):
            return Token(content=bytes([int(piece[3:5], 16)]))
        special = bool(model.IsControl(token_id) or model.IsUnknown(token_id))
        return Token(content=(piece if special else piece.replace("\u2581", " ")).encode(), special=special)

    return TokenizerFile(kind="sentencepiece", num_tokens=num_pieces, _look_up=look_up)


def _of_ranks(content: bytes, path: str | Path) -> TokenizerFile:
    tokens: dict[int, Token] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line:
            continue
        spelled, _, rank = line.partition(b" ")
        try:
            token = Token(content=base64.b64decode(spelled, validate=True))
            token_id = int(rank)
        except (binascii.Error, ValueError) as error:
            raise InputError(
                f"the tokenizer {path} is damaged", found=f"line {number:,}: {_first_line(error)}"
            ) from error
        if token_id in tokens:
            raise InputError(f"the tokenizer {path} is damaged", found=f"line {number:,}: id {token_id} stands twice")
        tokens[token_id] = token
    for token_id, name in _PUBLISHED.get((len(tokens), max(tokens)), {}).items():
        tokens[token_id] = Token(content=name.encode(), special=True)
    return TokenizerFile(kind="tiktoken", num_tokens=len(tokens), _look_up=tokens.get)


def _lacking(path: str | Path, library: str, error: ImportError) -> UsageError:
    return UsageError(
        f"the tokenizer {path} needs {library}", found=_first_line(error), todo="pip install 'dataguard[text]'"
    )


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
