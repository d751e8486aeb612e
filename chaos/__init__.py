"""Kills, wedges and stalls a vLLM fleet, records what every client saw, and judges it."""
