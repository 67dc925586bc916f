"""Compiled kernels of the corpus: what must go over every byte of the data, at the speed of memory.

This folder is the only place of the room that imports numba, and nothing imports it before there is enough work to pay
for that (formats/bulk_lines.py). Kernels are serial, hold no interpreter lock and allocate nothing, so they are safe in
threads and after a fork. Each is a shortcut of something slower that is the authority: what a kernel is not certain of
it leaves to that.
"""
