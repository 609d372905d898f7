"""Load: requests sent as users send them, and the reference server that they are sent to."""
