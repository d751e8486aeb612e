"""Routers that are known by name, and how each is started."""
