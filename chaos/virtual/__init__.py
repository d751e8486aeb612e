"""A whole run in virtual time: one process, no socket, no sleeping, and the same history from the same seed."""
