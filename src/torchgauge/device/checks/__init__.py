"""What makes timings lie: pure functions of readings, one theme per file; `every` lists them."""
