"""Looks back: what was delivered at a step, rebuilt and compared; where a record was trained on; whether all agrees.

In comes a run directory (and the shards, where content is rebuilt); out come values that the command line and reports
render. Nothing here writes into the run.
"""
