"""How does every keyed choice of the stream get a key of its own?

A key is 64 bits hashed from a purpose and its parts (seed, source, epoch, lane, window, ...), never summed: seed 0 of
epoch 1 is not seed 1 of epoch 0. The parts are written down unambiguously before they are hashed:

1. a version tag, then the purpose, then each part in the order given;
2. every one as a type byte (``s`` text, ``i`` integer), its length in bytes (8 bytes, little-endian) and its bytes:
   UTF-8 for text, the shortest two's complement in little-endian order for integers, of any size;
3. xxh3-64 over all of it.

So ``("a", "bc")`` and ``("ab", "c")``, ``1`` and ``"1"``, ``2**64`` and ``0`` all differ, in every process and on
every machine.
"""

from __future__ import annotations

import xxhash

__all__ = ["derive_key"]

_VERSION = b"dataguard-key-1"


def derive_key(purpose: str, *parts: int | str) -> int:
    """The key (an unsigned 64-bit integer) of one purpose and its parts.

    Parameters
    ----------
    purpose
        What the key is for, e.g. ``block-order``. Two purposes never share a key.
    parts
        Integers of any size and sign, and text.

    Raises
    ------
    TypeError
        If a part is neither an integer nor text (a bool or a float would be a mistake here).

    Examples
    --------
    >>> derive_key("block-order", 0, "web", 1) == derive_key("block-order", 1, "web", 0)
    False
    >>> hex(derive_key("block-order", 17, "web", 0))
    '0xc72a51013cf2f8dd'
    """
    pieces = [_VERSION, _text(purpose)]
    for part in parts:
        if isinstance(part, str):
            pieces.append(_text(part))
        elif isinstance(part, int) and not isinstance(part, bool):
            content = part.to_bytes((part if part >= 0 else ~part).bit_length() // 8 + 1, "little", signed=True)
            pieces.append(b"i" + len(content).to_bytes(8, "little") + content)
        else:
            raise TypeError(f"a key is made of integers and text, not of {part!r} ({type(part).__name__})")
    return xxhash.xxh3_64_intdigest(b"".join(pieces))


def _text(text: str) -> bytes:
    content = text.encode()
    return b"s" + len(content).to_bytes(8, "little") + content
