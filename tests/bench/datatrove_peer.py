"""The process that is datatrove in a benchmark: it sees nothing of this project (`tests.bench.other_process`).

It reads documents, then rounds, from standard input. A round is ``"by white space"`` or ``"its own"``: the words to
take; it answers how many documents passed its filter, and how much processor time that took.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time

__all__ = ["REQUIREMENTS", "VERSION"]

VERSION = "0.10.1"
REQUIREMENTS = (f"datatrove=={VERSION}", "spacy==3.8.18", "regex")
"""spaCy's blank English tokenizer, which needs no model, is what datatrove takes for English; regex it forgets to ask
for."""


def answer_rounds() -> None:
    """Read documents, then rounds, from standard input, and answer each on standard output, in JSON by the line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline.filters import gopher_repetition_filter as gopher  # type: ignore[import-not-found]

    words_of = {"by white space": lambda text, _: text.split(), "its own": gopher.split_into_words}
    documents = [Document(text=text, id=str(place)) for place, text in enumerate(json.loads(sys.stdin.readline()))]
    never = math.inf  # thresholds off: no document is done with before all has been counted
    judge = gopher.GopherRepetitionFilter(
        dup_line_frac=never,
        dup_para_frac=never,
        dup_line_char_frac=never,
        dup_para_char_frac=never,
        top_n_grams=tuple((n, never) for n in (2, 3, 4)),
        dup_n_grams=tuple((n, never) for n in range(5, 11)),
    )
    print(json.dumps({"documents": len(documents)}), file=answers, flush=True)
    for line in sys.stdin:
        gopher.split_into_words = words_of[json.loads(line)]
        began = time.process_time()
        passed = sum(judge.filter(document) is True for document in documents)
        seconds = time.process_time() - began
        print(json.dumps({"processor_seconds": seconds, "passed": passed}), file=answers, flush=True)


if __name__ == "__main__":
    answer_rounds()
