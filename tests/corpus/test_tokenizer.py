"""Files of all three kinds of tokenizers say the same of their ids as the libraries that made them."""

from __future__ import annotations

import base64
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import sentencepiece
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.implementations import ByteLevelBPETokenizer

from dataguard.corpus.tokenizer import TokenizerFile, open_tokenizer
from dataguard.errors import InputError, UsageError

TEXTS = [
    "the quick brown fox jumps over a lazy dog; café, naïve, 数据 и текст\n",
    "buy now buy now buy now, don't wait: 1234567890 \u2603 \U0001f600",
    "def spam(eggs):\n    return eggs  # twice\n\tand a tab",
]
END = "<|endoftext|>"


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    )
    made.add_tokens([AddedToken("an added one")])
    return made


def metaspace() -> Tokenizer:
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"thequickbrown"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(["</s>"])
    return made


def word_piece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.decoder = decoders.WordPiece(cleanup=False)
    made.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    )
    return made


def opened(made: Tokenizer, folder: Path) -> TokenizerFile:
    made.save(str(folder / "tokenizer.json"))
    return open_tokenizer(folder / "tokenizer.json")


def spelled(tokenizer: TokenizerFile, ids: list[int]) -> bytes:
    tokens = [tokenizer.token(each) for each in ids]
    assert all(token is not None for token in tokens)
    return b"".join(token.content for token in tokens if token is not None)


def test_byte_level_ids_are_their_bytes(tmp_path: Path) -> None:
    made = byte_level()
    tokenizer = opened(made, tmp_path)
    assert (tokenizer.kind, tokenizer.num_tokens) == ("tokenizers", made.get_vocab_size())
    for text in TEXTS:
        assert spelled(tokenizer, made.encode(text).ids) == text.encode()
    parts = [tokenizer.token(each).content for each in made.encode("\u2603").ids]
    assert len(parts) > 1
    assert b"".join(parts) == "\u2603".encode()
    end, added = tokenizer.token(made.token_to_id(END)), tokenizer.token(made.token_to_id("an added one"))
    assert (end.content, end.special) == (END.encode(), True)
    assert (added.content, added.special) == (b"an added one", False)
    assert {tokenizer.token(each) for each in (-1, made.get_vocab_size(), 1 << 31, 1 << 32, 1 << 70)} == {None}


def test_byte_fallback_and_blanks_of_sentencepiece_in_json(tmp_path: Path) -> None:
    made = metaspace()
    tokenizer = opened(made, tmp_path)
    for text in TEXTS:
        assert spelled(tokenizer, made.encode(text).ids) == text.encode()
    assert len(made.encode("\u2603").ids) == 3, "it is spelled in bytes"
    assert tokenizer.token(made.token_to_id("</s>")).special


def test_word_pieces_stand_apart_but_for_their_continuations(tmp_path: Path) -> None:
    made = word_piece()
    tokenizer = opened(made, tmp_path)
    ids = made.encode("the quick brown fox jumps").ids
    assert spelled(tokenizer, ids).decode().strip() == made.decode(ids)


def test_a_decoder_that_joins_tokens_in_another_way_is_asked_token_by_token(tmp_path: Path) -> None:
    made = word_piece()
    made.decoder = decoders.CTC(pad_token="[UNK]", word_delimiter_token="|")
    tokenizer = opened(made, tmp_path)
    each = made.token_to_id("fox") or made.encode("fox").ids[0]
    assert tokenizer.token(each).content.decode() == made.decode([each])


def test_without_a_decoder_tokens_stand_apart(tmp_path: Path) -> None:
    made = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    assert spelled(opened(made, tmp_path), [0, 1, 1]).decode().strip() == made.decode([0, 1, 1])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "text").write_text("".join(text.replace("\n", " ") + "\n" for text in TEXTS * 20), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.Train(
        input=str(folder / "text"),
        model_prefix=str(folder / "tiny"),
        vocab_size=330,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=0.98,
        user_defined_symbols=["<tool>"],
        minloglevel=2,
    )
    return folder / "tiny.model"


def test_a_model_of_sentencepiece(model: Path) -> None:
    tokenizer = open_tokenizer(model)
    made = sentencepiece.SentencePieceProcessor(model_file=str(model))
    assert (tokenizer.kind, tokenizer.num_tokens) == ("sentencepiece", made.GetPieceSize())
    for text in ("the quick brown fox", "\u2603 snow \U0001f600", "use <tool> now"):
        ids = made.EncodeAsIds(text)
        assert spelled(tokenizer, ids).removeprefix(b" ").decode() == made.DecodeIds(ids) == text
    parts = [tokenizer.token(each).content for each in made.EncodeAsIds("\U0001f600")]
    assert len([part for part in parts if len(part) == 1 and part > b"\x7f"]) == 4
    assert [tokenizer.token(each) for each in (-1, made.GetPieceSize(), 1 << 40)] == [None, None, None]
    special = [tokenizer.token(each) for each in (made.unk_id(), made.bos_id(), made.eos_id())]
    assert [(token.content, token.special) for token in special] == [(b"<unk>", True), (b"<s>", True), (b"</s>", True)]
    assert not tokenizer.token(made.PieceToId("<tool>")).special


def ranks_file(path: Path, ranks: dict[bytes, int]) -> Path:
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


def test_ranks_of_tiktoken(tmp_path: Path) -> None:
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"th": 256, b"the": 257, "\u20ac".encode()[:2]: 258}
    tokenizer = open_tokenizer(ranks_file(tmp_path / "x.tiktoken", ranks))
    made = tiktoken.Encoding("tiny", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={END: 300})
    assert (tokenizer.kind, tokenizer.num_tokens) == ("tiktoken", 259)
    for text in TEXTS:
        assert spelled(tokenizer, made.encode(text)) == text.encode()
    for each in range(259):
        assert tokenizer.token(each).content == made.decode_single_token_bytes(each)
    assert tokenizer.token(300) is None, "the file does not hold it"


def test_the_end_of_a_document_in_ranks_that_were_published(tmp_path: Path) -> None:
    ranks = {each.to_bytes(3, "big"): each for each in range(50_256)}
    token = open_tokenizer(ranks_file(tmp_path / "r50k_base.tiktoken", ranks)).token(50_256)
    assert (token.content, token.special) == (END.encode(), True)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it is empty"),
        (b"PAR1 something else", "it begins with"),
        (b'{"model": ', "no JSON"),
        (b'{"model": {"type": "NoSuchModel"}}', "damaged"),
        (b'{"!": 0, "\\"": 1}', "JSON without a model"),
        (b"aGVsbG8= 0\naGVsbG8 1\n", "line 2"),
        (b"aGVsbG8= 0\naGVsbG8= x\n", "line 2"),
        (b"aGVsbG8= 0\n4oI= 0\n", "line 2: id 0 stands twice"),
        (b"\n\x05 nothing of sentencepiece", "or damaged"),
    ],
)
def test_what_is_no_tokenizer_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=told):
        open_tokenizer(tmp_path / "file")


@given(content=st.binary(max_size=60))
def test_any_bytes_are_a_tokenizer_or_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with suppress(InputError):
        assert open_tokenizer(tmp_path / "file").num_tokens > 0


def test_a_truncated_model_is_told(model: Path, tmp_path: Path) -> None:
    content = model.read_bytes()
    for size in (1, 3, 100, len(content) // 2 - 1):
        (tmp_path / "cut.model").write_bytes(content[:size])
        try:
            found = open_tokenizer(tmp_path / "cut.model").num_tokens
        except InputError:
            continue
        assert found < open_tokenizer(model).num_tokens  # cut between two pieces it is a smaller model


def test_no_file_and_a_folder_are_matters_of_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        open_tokenizer(tmp_path / "none")
    with pytest.raises(UsageError, match="is a folder"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize(("library", "make"), [("tokenizers", byte_level), ("sentencepiece", None)])
def test_without_its_library_the_extra_is_named(tmp_path: Path, model: Path, library: str, make) -> None:
    path = model
    if make is not None:
        path = tmp_path / "tokenizer.json"
        make().save(str(path))
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from dataguard.corpus.tokenizer import open_tokenizer\n"
        f"try: open_tokenizer({str(path)!r})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"UsageError the tokenizer {path} needs {library}")
    assert "pip install 'dataguard[text]'" in told


def test_opening_the_module_imports_no_library() -> None:
    code = (
        "import sys, dataguard.corpus.tokenizer; "
        "print({'tokenizers', 'sentencepiece', 'tiktoken'} & {name.partition('.')[0] for name in sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_real_files(shared: Path, tmp_path: Path) -> None:
    tokenizers = shared / "data" / "tokenizers"
    path = tokenizers / "torchtitan_test" / "tokenizer.json"
    made, tokenizer = Tokenizer.from_file(str(path)), open_tokenizer(path)
    ids = [each for text in TEXTS for each in made.encode(text).ids]
    assert spelled(tokenizer, ids).decode() == made.decode(ids, skip_special_tokens=False)
    gpt2 = tokenizers / "gpt2_tiny"
    vocabulary = gpt2 / "gpt2-tiny-vocab.json"
    with pytest.raises(InputError, match="ByteLevelBPETokenizer"):
        open_tokenizer(vocabulary)
    library = ByteLevelBPETokenizer(str(vocabulary), str(gpt2 / "gpt2-tiny-merges.txt"))
    library.save(str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert spelled(open_tokenizer(tmp_path / "tokenizer.json"), library.encode(text).ids) == text.encode()
