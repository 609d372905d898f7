"""From the forwards of generation: its shapes, how they grow, what bounds them, what fits."""
