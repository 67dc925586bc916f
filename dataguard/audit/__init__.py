"""Is this corpus fit to train on? Offline scoring of whole corpora: engines, account, duplicates, drift, outputs.

An audit has two halves. The first is long, is done in tasks by an engine and can be interrupted anywhere: every block
is read and scored, and each task leaves one part in the audit's folder. The second reads the parts, in order, and makes
all that is told: profile, verdicts, withheld rows, duplicates, account.

Data goes `tasks` and `sample` (which blocks and rows) -> `scoring` through `engines` (blocks to `parts`) -> `finish`
(parts to documents, which stand in `documents`). `run.run_audit` is the whole of it.
"""
