"""Events as Parquet, written and read back."""
