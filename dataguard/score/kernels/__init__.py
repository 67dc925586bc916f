"""The compiled kernels, the only place of this room that imports numba; one file a call graph."""
