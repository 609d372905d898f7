"""The APIs that the client speaks."""

# As options write them; the reference server's own is not among them.
APIS = (
    *("json", "openai-chat", "openai-completions", "ollama-chat", "ollama-generate", "tgi"),
    *("sse", "ndjson", "kserve-v2"),
)
