"""gymproof.router: one stable URL in front of a vLLM fleet, whose every failure becomes an answer NeMo-Gym survives."""
