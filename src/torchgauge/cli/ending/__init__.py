"""How a command ends: by a signal as by Ctrl-C, never by the code that it measures."""
