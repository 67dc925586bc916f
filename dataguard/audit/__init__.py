"""Is this corpus fit to train on? Offline scoring of whole corpora: engines, account, duplicates, drift, outputs.

An audit has two halves. The first is long, is done in tasks by an engine and can be interrupted anywhere: every block
is read and scored, and each task leaves one part in the audit's folder. The second reads the parts, in order, and makes
all that is told: profile, verdicts, withheld rows, duplicates, account.

Data goes `tasks` and `sample` (which blocks and rows) -> `scoring` through `engines` (blocks to `parts`) -> `finish`
(parts to documents, which stand in `documents`). `run.run_audit` is the whole of it.

Memory: for each worker its largest block twice (or, in a compressed shard that several tasks share, a task's 8 MiB) and
some 50 MB of signals; then, for the second half, 100 MB for one run of digests, 64 MiB for merging them, and 24 bytes
for every shard and rule. None of it grows with the number of records.
"""
