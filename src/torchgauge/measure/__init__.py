"""One probe per file, and the plan that orders them."""
