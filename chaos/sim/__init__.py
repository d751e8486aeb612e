"""A look-alike of vLLM for chaos runs: a real API server process and a real engine process, without a model.

What it answers, and how it dies, is held to measurements of vLLM 0.32. `python -m gymproof.chaos.sim --help` starts
one shard; `gymproof.chaos.fleet.SimFleet` starts several.
"""
