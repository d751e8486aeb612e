"""Real vLLM servers as the shards of a chaos run. Only this package knows vLLM's arguments, environment and versions.

The servers run under an interpreter that may be another than the harness's; what runs there is in `inside`.
"""
