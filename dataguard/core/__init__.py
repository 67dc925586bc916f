"""Nouns and arithmetic that every room shares: addresses, manifests, spans, digests, keys, the keyed permutation.

Pure: integers and arrays in, values out; no IO, no clock, no randomness, no logging. Modules are imported by their own
names, so that a lookup that needs only an address does not pay for the rest; `permute_kernels` alone is compiled, by
the decorator of `compiled`, and so imports numba.
"""
