"""What each rank logs by step, held against what was delivered: `Monitor`.

In come numbers and tensors of a step; out goes the run's telemetry.
"""
