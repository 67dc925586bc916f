"""Which rank is this process, how do ranks speak to each other, and which processes are one rank?

Process groups behind `dataguard.loader.peers.Peers`, and replicas: processes that share one copy of the model.
"""
