"""Records as Markdown, short enough for a pull request."""
