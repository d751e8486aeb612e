"""Judges any router by one set of checks, and compares routers on a scoreboard."""
