"""Records, traces and snapshots for language models, over the Model Context Protocol."""
