"""How much work a call does, counted operator by operator."""
