"""The page of a generation: shapes, growth with the context, cache, parts of a call, two trees."""
