"""What a model and its optimizer look like every N steps, by hooks: `Monitor.watch`.

In come modules and optimizers; out go numbers by name, for the telemetry of the step.
"""
