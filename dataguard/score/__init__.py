"""What is odd about a sample? Signals: their registry, their compiled kernels, the reference profile of a corpus.

`registry` holds what each signal is, `text` and `tokens` compute them through `kernels/`, `spans` says which part of a
sample made a signal what it is, `profile` keeps what is usual for a source.
"""
