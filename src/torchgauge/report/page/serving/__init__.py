"""The page of serving: latency over rate and time, its distribution, requests, capacity plans."""
