"""What the windows of monitors say: burn rates against objectives, and changes of level."""
