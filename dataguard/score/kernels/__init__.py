"""The compiled kernels, the only place of this room that imports numba; one file a call graph.

Numba's cache on disk sees changes of a kernel's own file alone: an edited helper in another module would go on giving
the old results. So the few helpers that kernels share stand in each of their files, and a test keeps them equal.
"""
