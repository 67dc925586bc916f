"""From a spike to a verdict to the commands that mend it: detect, localise, experiment, verdict, response.

In come logs, runs and replays; out come events, rankings, a diagnosis verdict and a response. `detect` finds events in
any training log, `localise` says which ranks, samples and shards stand out, `evidence` reads the logs of machines,
`diagnose` draws the verdict, `respond` plans what to type, `preflight` checks a run before it begins. The core of each
is pure: numbers and facts in, values out.
"""
