"""What is asked of a router beside faults: payloads, headers, paths, affinity, cancellation, load, restart."""
