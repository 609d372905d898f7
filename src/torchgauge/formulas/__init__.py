"""FLOPs and bytes per operator as free functions of shapes and dtypes, without torch."""
