"""Fleets to measure a routing policy on: simulated engines in virtual time, simulated servers, real vLLM."""
